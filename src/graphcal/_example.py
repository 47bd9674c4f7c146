"""Simulated outputs, for trying things out without training a model."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from graphcal.core import FinalLayer, Outputs
from graphcal.graphs import structure


def example(num_nodes: int = 500, num_classes: int = 5, seed: int = 0) -> Outputs:
    """Simulate an accurate, under-confident node classifier on a homophilic graph.

    Features are noisy class means, the hidden representation is their mean over a node and its neighbours, and it
    is too short. A tenth of the nodes are training nodes, a third are validation nodes, the others are test nodes.

    Parameters
    ----------
    num_nodes, num_classes : int
        Size of the graph.
    seed : int, default=0
        Seed of the simulation.

    Returns
    -------
    Outputs
        With ``graph`` (x, edge_index, y, masks), final layer and hidden representation.

    Examples
    --------
    >>> import graphcal
    >>> out = graphcal.example()
    >>> out, out.graph.num_edges > 1000
    (Outputs(500 nodes, 5 classes, final layer known), True)
    """
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(num_classes, (num_nodes,), generator=draw)
    pairs = torch.randint(num_nodes, (2, 10 * num_nodes), generator=draw)
    same = y[pairs[0]] == y[pairs[1]]
    drawn = torch.rand(pairs.shape[1], generator=draw) < torch.where(same, 0.5, 0.08)
    pairs = pairs[:, drawn & (pairs[0] != pairs[1])]
    means = torch.randn(num_classes, 16, generator=draw)
    x = means[y] + 2.5 * torch.randn(num_nodes, 16, generator=draw)
    part = torch.rand(num_nodes, generator=draw)
    graph = Data(
        x=x,
        edge_index=torch.cat([pairs, pairs.flip(0)], 1),
        y=y,
        train_mask=part < 0.1,
        val_mask=(part >= 0.1) & (part < 0.43),
        test_mask=part >= 0.43,
        num_classes=num_classes,
        num_nodes=num_nodes,
    )
    hidden = 0.06 * (x + structure(graph).neighbour_mean(x))
    final = FinalLayer.from_weight(means)
    return Outputs(hidden @ final.weight.T + final.bias, graph, final, hidden)
