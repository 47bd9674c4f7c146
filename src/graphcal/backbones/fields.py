"""Receptive fields: which rows a pass has to compute to know the outputs of some nodes.

    nodes[K] = the nodes asked for,  nodes[k] = nodes[k+1] and all they read,  hops[k] = A[nodes[k+1], nodes[k]]

A training step needs the logits of the training nodes only, early stopping those of the validation nodes only: with 20 labels a
class on a citation graph that is a small part of the rows and of the dropout numbers. A deep backbone reads the whole graph; its
field is `whole` and only its last step is cut down to the nodes asked for.

The first product of a pass, A X W, has no randomness before it (unless the input is dropped out). Evaluating the state after a
step and training from it therefore share that product: the evaluation computes it for both, the training pass finds it in
`Shared`, by the weight and its version, so that a stale one cannot be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphcal.backbones.dropout import Dropout
from graphcal.backbones.features import Features
from graphcal.backbones.sparse import Sparse, bags


class Shared:
    """First products, each with the weight it was made from."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[Tensor, int, Tensor]] = {}

    def keep(self, weight: Tensor, kind: str, value: Tensor) -> None:
        self._known[id(weight), kind] = (weight, weight._version, value)

    def find(self, weight: Tensor, kind: str) -> Tensor | None:
        of, version, value = self._known.get((id(weight), kind), (None, -1, None))
        return value if of is weight and version == weight._version else None

    def forget(self) -> None:
        self._known.clear()


@dataclass(eq=False)
class Field:
    """What one pass sees: the input rows, and the hops from there to the nodes asked for."""

    nodes: Sequence[Tensor]  # K + 1 index tensors, input first
    hops: Sequence[Sparse]  # K operators, hops[k]: (len nodes[k+1], len nodes[k])
    x: Features  # rows nodes[0] of the input
    own: Sequence[Tensor | None]  # own[k]: where nodes[k+1] stand in nodes[k]; None when the two are the same
    asked: Tensor | None = None  # of the last level, the nodes asked for; None: all of it
    x1: Features | None = None  # rows nodes[1] of the input
    ax: Features | None = None  # rows nodes[1] of A X, where that is the cheaper way
    input_dropout: float = 0.0
    shared: Shared = field(default_factory=Shared)
    leads: bool = False  # a validation field: its first products are the ones that are shared

    def project(self, weight: Tensor, drop: Dropout | None = None, level: int = 0) -> Tensor:
        """X W for the rows nodes[level], level 0 or 1"""  # (R, n, H)
        x = self.x if level == 0 or self.own[0] is None else self.x1
        assert x is not None
        if drop is not None and self.input_dropout > 0:
            return x.dropped_times(weight, drop, self.input_dropout)
        return self._first(x, None, weight, f"x{level}")

    def propagate(self, weight: Tensor, drop: Dropout | None = None) -> Tensor:
        """A X W for the rows nodes[1]"""  # (R, n, H)
        if drop is not None and self.input_dropout > 0:
            return self.hops[0] @ self.x.dropped_times(weight, drop, self.input_dropout)
        if self.ax is not None:
            return self._first(self.ax, None, weight, "ax")
        return self._first(self.x, self.hops[0], weight, "ax")

    def keep_own(self, h: Tensor, level: int) -> Tensor:
        """The rows of nodes[level + 1], out of those of nodes[level]"""
        index = self.own[level]
        return h if index is None else h[:, index]

    def keep_asked(self, h: Tensor) -> Tensor:
        """The rows asked for, out of those of the last level"""
        return h if self.asked is None else h[:, self.asked]

    @property
    def answers(self) -> Tensor:
        """The nodes asked for."""
        return self.nodes[-1] if self.asked is None else self.nodes[-1][self.asked]

    def _first(self, x: Features, hop: Sparse | None, weight: Tensor, kind: str) -> Tensor:
        if not torch.is_grad_enabled():
            value = _product(x, hop, weight)
            if self.leads:
                self.shared.keep(weight, kind, value)
            return value
        known = self.shared.find(weight, kind)
        rows = x.shape[0] if hop is None else hop.shape[0]
        return _First.apply(weight, x, hop, None if known is None else known[:, :rows])


def _product(x: Features, hop: Sparse | None, weight: Tensor) -> Tensor:
    product = x.times(weight)
    return product if hop is None else bags(hop, product)


class _First(torch.autograd.Function):
    """A X W, whose value may be known already; the gradient in W is X^T A^T G."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Features, hop: Sparse | None, known: Tensor | None) -> Tensor:
        ctx.x, ctx.hop = x, hop
        return _product(x, hop, weight) if known is None else known.view_as(known)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        if ctx.hop is not None:
            grad = bags(ctx.hop.transpose, grad)
        return ctx.x.transpose_times(grad), None, None, None


# ------------------------------------------------------------------------------------------------------ building fields


@dataclass(frozen=True, eq=False)
class Graph:
    """What fields are cut from."""

    operator: sp.csr_matrix  # (N, N) what a node reads
    x: sp.csr_matrix  # (N, F)
    device: torch.device
    input_dropout: float = 0.0


def reached(operator: sp.csr_matrix, rows: np.ndarray) -> np.ndarray:
    """``rows`` and every node they read, sorted."""
    return np.union1d(rows, operator[rows].indices)


def whole(graph: Graph, depth: int, asked: np.ndarray | None = None) -> Field:
    """The field of a pass over the whole graph, with the outputs of the nodes ``asked`` for (None: of all)."""
    everything = np.arange(graph.x.shape[0])
    hop = Sparse.from_scipy(graph.operator, graph.device)
    nodes = torch.from_numpy(everything).to(graph.device)
    return Field(
        nodes=[nodes] * (depth + 1),
        hops=[hop] * depth,
        x=Features(graph.x, everything, graph.device),
        own=[None] * depth,
        asked=None if asked is None else torch.from_numpy(asked).to(graph.device),
        input_dropout=graph.input_dropout,
    )


DEEP = 4  # from this many hops on a field is the whole graph


def fields(graph: Graph, train: np.ndarray, stop: np.ndarray, depth: int) -> tuple[Field, Field]:
    """The fields of a training pass and of a validation pass over the nodes ``train`` and ``stop``.

    The first two levels of the second begin with those of the first, so that the first product of the second can be cut for
    the first."""
    shared = Shared()
    if depth >= DEEP:
        learn, check = whole(graph, depth, train), whole(graph, depth, stop)
        learn.shared, check.shared, check.leads = shared, shared, True
        check.x, check.hops, check.nodes = learn.x, learn.hops, learn.nodes
        return learn, check
    levels, stop_levels = [np.asarray(train)], [np.asarray(stop)]
    share = graph.input_dropout == 0
    if depth == 0 and share:
        stop_levels = [np.concatenate([train, stop])]
    for level in reversed(range(depth)):
        levels.insert(0, reached(graph.operator, levels[0]))
        needed = reached(graph.operator, stop_levels[0])
        if level <= 1 and share:
            needed = np.concatenate([levels[0], np.setdiff1d(needed, levels[0])])
        stop_levels.insert(0, needed)
    learn, check = _cut(graph, levels), _cut(graph, stop_levels)
    if depth == 0 and share:
        check.asked = torch.arange(len(train), len(train) + len(stop), device=graph.device)
    learn.shared, check.shared, check.leads = shared, shared, share
    return learn, check


def _cut(graph: Graph, levels: list[np.ndarray]) -> Field:
    hops = [graph.operator[above][:, below] for below, above in pairwise(levels)]
    numbered = sp.csr_matrix(
        (np.arange(graph.operator.nnz), graph.operator.indices, graph.operator.indptr), graph.operator.shape
    )
    made = Field(
        nodes=[torch.from_numpy(level).to(graph.device) for level in levels],
        hops=[Sparse.from_scipy(hop, graph.device) for hop in hops],
        x=Features(graph.x, levels[0], graph.device),
        own=[_positions(above, below, graph) for below, above in pairwise(levels)],
        input_dropout=graph.input_dropout,
    )
    for hop, below, above in zip(made.hops, levels, levels[1:]):
        hop.entries = torch.from_numpy(numbered[above][:, below].data.astype(np.int64)).to(graph.device)
    if len(levels) > 1:
        made.x1 = Features(graph.x, levels[1], graph.device)
        made.ax = _propagated(graph, levels[0], hops[0], made.x.nnz + hops[0].nnz)
    return made


def _propagated(graph: Graph, below: np.ndarray, hop: sp.csr_matrix, entries: int) -> Features | None:
    """A X for the rows of the first hop, if its product with W costs less than X W and then A (X W) (``entries``)."""
    if hop.shape[0] * graph.x.shape[1] > 50 * entries and hop.nnz > 3 * hop.shape[0]:
        return None  # wide and scattered input: the product fills up, do not even form it
    product = (hop @ graph.x[below]).tocsr()
    return Features(product, np.arange(product.shape[0]), graph.device) if product.nnz < entries else None


def _positions(above: np.ndarray, below: np.ndarray, graph: Graph) -> Tensor:
    where = np.empty(graph.x.shape[0], dtype=np.int64)
    where[below] = np.arange(len(below))
    return torch.from_numpy(where[above]).to(graph.device)
