"""Small outputs of an imaginary model, for tests that fit calibrators."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import nll_loss, one_hot
from torch_geometric.data import Data

from conftest import random_graph
from graphcal.core import Calibration, FinalLayer, ModelHandle, Outputs, Recipe
from graphcal.graphs import structure
from graphcal.methods import CALIBRATORS
from graphcal.methods.solvers.linear import fit_linear, loo_logits, soft_nll


def propagated(x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 x with weighted edges."""
    row, col = edge_index
    degree = torch.ones(len(x), dtype=x.dtype).index_add(0, col, edge_weight)
    scale = degree.rsqrt()
    message = (edge_weight * scale[row] * scale[col])[:, None] * x[row]
    return (x * (scale**2)[:, None]).index_add(0, col, message)


@dataclass(frozen=True, eq=False)
class OneLayerGCN:
    """A model that can be run again, with weights on its edges or with dropout on its inputs."""

    inputs: Tensor  # (N, D)
    edge_index: Tensor
    weight: Tensor  # (C, D)
    bias: Tensor

    def hidden(self, edge_weight: Tensor | None = None, dropout: torch.Generator | None = None) -> Tensor:
        inputs = self.inputs
        if dropout is not None:
            inputs = 2 * torch.empty_like(inputs).bernoulli_(0.5, generator=dropout) * inputs
        weight = torch.ones(self.edge_index.shape[1]) if edge_weight is None else edge_weight
        return propagated(inputs.to(weight), self.edge_index, weight)

    def logits(self, edge_weight: Tensor | None = None, dropout: torch.Generator | None = None) -> Tensor:
        h = self.hidden(edge_weight, dropout)
        return h @ self.weight.to(h).T + self.bias.to(h)


def model_outputs(
    graph: Data | None = None, classes: int = 4, width: int = 6, sharpness: float = 0.4, seed: int = 0
) -> Outputs:
    """An accurate, under-confident one-layer GCN, with all that calibrators may ask of a model."""
    graph = random_graph(classes=classes) if graph is None else graph
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, width, generator=g)
    inputs = weight[graph.y] + 1.5 * torch.randn(graph.num_nodes, width, generator=g)
    weight, bias = sharpness * weight, 0.1 * torch.randn(classes, generator=g)
    model = OneLayerGCN(inputs, graph.edge_index, weight, bias)
    return Outputs(model.logits(), graph, FinalLayer.from_weight(weight, bias), model.hidden(), model)


@dataclass(frozen=True, eq=False)
class Says:
    """A model that answers with these logits, whatever the edge weights, and with others under dropout."""

    fixed: Tensor
    noisy: Tensor | None = None

    def logits(self, edge_weight: Tensor | None = None, dropout: torch.Generator | None = None) -> Tensor:
        logits = self.fixed if dropout is None or self.noisy is None else self.noisy
        return logits if edge_weight is None else logits + 0.0 * edge_weight.sum()


def with_logits(logits: Tensor, graph: Data, seed: int = 0) -> Outputs:
    """The given logits, with a made-up final layer and a model that answers with them."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(logits.shape[1], 5, generator=g)
    hidden = torch.randn(len(logits), 5, generator=g)
    return Outputs(logits, graph, FinalLayer.from_weight(weight), hidden, Says(logits))


@dataclass(frozen=True, eq=False)
class Renumbered:
    model: ModelHandle
    order: Tensor

    def logits(self, edge_weight: Tensor | None = None, dropout: torch.Generator | None = None) -> Tensor:
        return self.model.logits(edge_weight, dropout)[self.order]


def permuted(out: Outputs, order: Tensor) -> Outputs:
    """The same model on the same graph with node ``order[i]`` renumbered i; edges, and so their weights, keep their order."""
    position = torch.empty_like(order)
    position[order] = torch.arange(len(order))
    old = out.graph
    graph = Data(
        x=old.x[order],
        edge_index=position[old.edge_index],
        y=old.y[order],
        train_mask=old.train_mask[order],
        val_mask=old.val_mask[order],
        test_mask=old.test_mask[order],
        num_nodes=old.num_nodes,
    )
    assert out.hidden is not None
    assert out.model is not None
    return Outputs(out.logits[order], graph, out.final, out.hidden[order], Renumbered(out.model, order))


def quick(name: str, **wanted: object) -> Recipe:
    """The recipe with its defaults, and ``wanted`` where it has such a field: small budgets for tests of the contract."""
    cls = CALIBRATORS[name]
    names = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    return cls(**{k: v for k, v in wanted.items() if k in names})


SMALL = {"epochs": 15, "penalties": (1.0, 100.0), "folds": 2}


def linear_outputs(graph: Data, seed: int = 0, width: int = 6, noise: float = 1.0, sharpness: float = 0.6) -> Outputs:
    """A linear head on noisy class means, in double precision: accurate and under-confident, as GNNs are."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(4, width, generator=g, dtype=torch.double)
    hidden = weight[graph.y] + noise * torch.randn(graph.num_nodes, width, generator=g, dtype=torch.double)
    weight, bias = weight * sharpness, 0.1 * torch.randn(4, generator=g, dtype=torch.double)
    return Outputs(hidden @ weight.T + bias, graph, FinalLayer.from_weight(weight, bias), hidden)


def on_val(out: Outputs) -> tuple[Tensor, Tensor]:
    """Logits and labels of the validation nodes."""
    on = out.graph.val_mask
    return out.logits[on].double(), out.graph.y[on]


def val_nll(fitted: Calibration, out: Outputs, on: Tensor | None = None) -> float:
    on = out.graph.val_mask if on is None else on
    return float(nll_loss(fitted(out)[on].double(), out.graph.y[on]))


def dense_adjacency(out: Outputs) -> Tensor:
    return structure(out.graph).adjacency.to_dense()


def neighbours(out: Outputs, node: int) -> list[int]:
    return structure(out.graph).neighbours.to_dense()[node].nonzero().flatten().tolist()


def ridge_path(graph: Data, sharpness: float) -> tuple[Any, ...]:
    """A fit with five penalised columns, and what solving it for each of four ridges gives: theta and leave-one-out NLL."""
    out = linear_outputs(graph, noise=1.5, sharpness=sharpness)
    index = graph.val_mask.nonzero().flatten()
    z, y = out.logits[index].double(), graph.y[index]
    columns = torch.randn(len(index), 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    columns[:, 0] = 1.0
    terms = columns[:, None, :] * z[:, :, None]
    terms = terms / (terms - terms.mean(1, keepdim=True)).square().mean((0, 1)).sqrt()
    target = one_hot(y, 4).double()
    centre, held = torch.zeros(6, dtype=torch.double), torch.ones(6, dtype=torch.double)
    held[0] = 0.0
    base, ridges = torch.zeros_like(z), (1.0, 0.1, 0.01, 0.001)
    centre[:1] = fit_linear(base, terms[:, :, :1], target)
    solved = {ridge: fit_linear(base, terms, target, ridge * held, centre) for ridge in ridges}
    unseen = {r: float(soft_nll(loo_logits(base, terms, target, t, r * held), target)) for r, t in solved.items()}
    return base, terms, target, centre, held, ridges, solved, unseen
