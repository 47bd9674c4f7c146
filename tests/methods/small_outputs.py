"""Small outputs of an imaginary model, for tests that fit every calibrator."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor
from torch_geometric.data import Data

from conftest import random_graph
from graphcal.core import FinalLayer, Outputs, Recipe
from graphcal.methods import CALIBRATORS, GATS


def propagated(x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 x with weighted edges."""
    row, col = edge_index
    degree = torch.ones(len(x), dtype=x.dtype).index_add(0, col, edge_weight)
    scale = degree.rsqrt()
    message = (edge_weight * scale[row] * scale[col])[:, None] * x[row]
    return (x * (scale**2)[:, None]).index_add(0, col, message)


def model_outputs(
    graph: Data | None = None, classes: int = 4, width: int = 6, sharpness: float = 0.4, seed: int = 0
) -> Outputs:
    """An accurate, under-confident one-layer GCN, with all that calibrators may ask of a model."""
    graph = random_graph(classes=classes) if graph is None else graph
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, width, generator=g)
    inputs = weight[graph.y] + 1.5 * torch.randn(graph.num_nodes, width, generator=g)
    weight, bias = sharpness * weight, 0.1 * torch.randn(classes, generator=g)
    edges = graph.edge_index

    def rerun(edge_weight: Tensor) -> Tensor:
        return propagated(inputs.to(edge_weight), edges, edge_weight) @ weight.to(edge_weight).T + bias.to(edge_weight)

    def noisy(generator: torch.Generator) -> Tensor:
        keep = torch.empty_like(inputs).bernoulli_(0.5, generator=generator)
        return propagated(2 * keep * inputs, edges, torch.ones(edges.shape[1])) @ weight.T + bias

    hidden = propagated(inputs, edges, torch.ones(edges.shape[1]))
    return Outputs(hidden @ weight.T + bias, graph, FinalLayer.from_weight(weight, bias), hidden, rerun, noisy)


def with_logits(logits: Tensor, graph: Data, seed: int = 0) -> Outputs:
    """The given logits, with a made-up final layer and a model that answers with them whatever the edge weights."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(logits.shape[1], 5, generator=g)
    hidden = torch.randn(len(logits), 5, generator=g)
    return Outputs(
        logits,
        graph,
        FinalLayer.from_weight(weight),
        hidden,
        lambda edge_weight: logits + 0.0 * edge_weight.sum(),
    )


def permuted(out: Outputs, order: Tensor) -> Outputs:
    """The same model on the same graph with node ``order[i]`` renumbered i; edges, and so their weights, keep their order."""
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    old = out.graph
    graph = Data(
        x=old.x[order],
        edge_index=place[old.edge_index],
        y=old.y[order],
        train_mask=old.train_mask[order],
        val_mask=old.val_mask[order],
        test_mask=old.test_mask[order],
        num_nodes=old.num_nodes,
    )
    rerun = out.rerun
    assert rerun is not None
    assert out.hidden is not None
    return Outputs(out.logits[order], graph, out.final, out.hidden[order], lambda w: rerun(w)[order])


def quick(name: str, **wanted: object) -> Recipe:
    """The recipe with its defaults, and ``wanted`` where it has such a field: small budgets for tests of the contract."""
    cls = CALIBRATORS[name]
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    return cls(**{k: v for k, v in wanted.items() if k in known})


SMALL = {"epochs": 15, "penalties": (1.0, 100.0), "folds": 2, "calibrator": GATS(epochs=15)}
