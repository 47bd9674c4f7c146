"""Observe a model on a graph that is too large for one pass: layer by layer, or batch by batch.

by_layers    the logits of the whole graph, exactly: each message-passing layer works through its target nodes in chunks
by_batches   the logits of each batch's seeds, put together for all nodes: what a model says where it is served by batches

The final layer is read off a small part of the graph (it is the model's, not the graph's). The representation that enters it
comes from the same passes as the logits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from graphcal.core import Outputs
from graphcal.observation.graph_parts import GraphParts
from graphcal.observation.output_activation import Read, two_columns
from graphcal.observation.target_chunks import by_target_chunks, message_passing_layers

SMALL = 200  # edges of the part on which the final layer is read
See = Callable[[Data], Outputs]
Record = Callable[[Data], Read]


def by_layers(model: nn.Module, data: Any, see: See, record: Record) -> Outputs:
    """``see`` observes a small graph, ``record`` runs the model once on any graph."""
    if not isinstance(data, Data):
        raise ValueError(f"layerwise=True is for a graph with one kind of nodes, a Data; got {type(data).__name__}")
    if hasattr(model, "on"):  # graphcal's models form no messages
        return see(data)
    if not message_passing_layers(model):
        raise ValueError(
            f"{type(model).__name__} has no message-passing layer of PyG, so there is nothing to run by parts: observe it "
            "without layerwise=True, or batch by batch with loader=NeighborSampler(data, fanouts)"
        )
    final = see(small_part(data)).final
    with by_target_chunks(model):
        read = record(data)
    hidden = read.hidden()
    return Outputs(two_columns(read.logits), data, final, hidden if isinstance(hidden, Tensor) else None)


def small_part(data: Data) -> Data:
    """The ends of a few edges, with all their attributes."""
    nodes = torch.arange(min(SMALL, int(data.num_nodes)), device=data.edge_index.device)
    return GraphParts(data).among(torch.cat([nodes, data.edge_index[:, :SMALL].flatten()]).unique())


def by_batches(model: nn.Module, loader: Iterable[Data], data: Any, see: See, record: Record) -> Outputs:
    """``see`` and ``record`` as in `by_layers`; the graph is the loader's unless ``data`` is given."""
    graph = getattr(loader, "data", None) if data is None else data
    if isinstance(graph, HeteroData):
        raise ValueError(
            "loader= is for a graph with one kind of nodes, a Data; got HeteroData: observe it in one pass"
        )
    if not isinstance(graph, Data):
        raise ValueError(
            f"the loader {type(loader).__name__} does not hold its graph: give it too, observe(model, data, loader=loader)"
        )
    num_nodes, final = int(graph.num_nodes), None
    logits, hidden = torch.empty(0), None
    done = torch.zeros(num_nodes, dtype=torch.bool)
    for number, batch in enumerate(loader):
        seeds, size = seeds_of(batch), int(batch.num_nodes)
        if number == 0:
            final = see(_all_seeds(batch)).final
        read = record(batch)
        rows, entering = two_columns(read.logits).detach(), read.hidden(size)
        if len(rows) not in (len(seeds), size):
            raise ValueError(
                f"{type(model).__name__} gave {len(rows)} rows for a batch of {size} nodes with {len(seeds)} seeds: "
                "logits of all nodes of a batch, or of its seeds, are expected"
            )
        if number == 0:
            logits = rows.new_zeros(num_nodes, rows.shape[1])
            hidden = None if isinstance(entering, str) else rows.new_zeros(num_nodes, entering.shape[1])
        logits[seeds] = rows[: len(seeds)]
        if hidden is not None:
            hidden = (
                None if isinstance(entering, str) else hidden.index_copy_(0, seeds, entering[: len(seeds)].to(hidden))
            )
        done[seeds] = True
    if not done.all():
        raise ValueError(
            f"{int((~done).sum())} of {num_nodes} nodes were a seed in no batch (first: node {int((~done).nonzero()[0])}), so "
            "nothing is known of them: let the loader go through all nodes (input_nodes=None)"
        )
    return Outputs(logits, graph, final, hidden)


def _all_seeds(batch: Data) -> Data:
    """The batch as if made for all its nodes: a model that answers for the seeds alone then answers for all."""
    whole = copy.copy(batch)
    whole.batch_size = int(batch.num_nodes)
    return whole


def seeds_of(batch: Data) -> Tensor:
    """The nodes a batch was made for, by their numbers in the whole graph."""
    missing = [name for name in ("n_id", "batch_size") if batch.get(name) is None]
    if missing:
        raise ValueError(
            f"a batch has no {' and no '.join(missing)}: give batches as NeighborSampler or PyG's NeighborLoader make them, "
            "seeds first, n_id their numbers in the whole graph"
        )
    seeds: Tensor = batch.n_id[: int(batch.batch_size)]
    return seeds.cpu()
