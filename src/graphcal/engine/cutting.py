"""Cutting receptive fields out of a graph.

`whole` is a pass over the whole graph; `fields` are the two passes of an epoch, over what the training nodes and the
validation nodes read. A X is formed beforehand where its product with W has fewer entries than X W and then A (X W).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphcal.engine.features import Features
from graphcal.engine.receptive import Field
from graphcal.engine.sparse import Sparse

T = TypeVar("T")


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


def whole(graph: Graph, depth: int) -> Field:
    """The field of a pass over the whole graph."""
    everything = np.arange(graph.x.shape[0])
    hop = Sparse.from_scipy(graph.operator, graph.device)
    nodes = torch.from_numpy(everything).to(graph.device)
    return Field(
        nodes=[nodes] * (depth + 1),
        hops=[hop] * depth,
        x=Features(graph.x, everything, graph.device),
        own=[None] * depth,
        input_dropout=graph.input_dropout,
    )


DEEP = 4  # hops; in a deeper field most levels are nearly the whole graph
NEARLY = 0.9  # of the nodes: such a level of a deep field is made the whole graph, so that all below share one operator


def fields(graph: Graph, train: np.ndarray, stop: np.ndarray, depth: int) -> tuple[Field, Field]:
    """The fields of a training pass and of a validation pass over the nodes ``train`` and ``stop``.

    The first two levels of the second begin with those of the first, so that the first product of the second can be cut for
    the first."""
    share, cutter = graph.input_dropout == 0, _Cutter(graph, depth)
    levels, stop_levels = [np.asarray(train)], [np.asarray(stop)]
    if depth == 0 and share:
        stop_levels = [np.concatenate([train, stop])]
    for level in reversed(range(depth)):
        levels.insert(0, cutter.below(levels[0]))
        needed = cutter.below(stop_levels[0])
        if level <= 1 and share and needed is not levels[0]:
            needed = np.concatenate([levels[0], np.setdiff1d(needed, levels[0])])
        stop_levels.insert(0, needed)
    learn, check = cutter.field(levels), cutter.field(stop_levels)
    if depth == 0 and share:
        check.asked = torch.arange(len(train), len(train) + len(stop), device=graph.device)
    check.shared, check.leads = learn.shared, share
    return learn, check


class _Cutter:
    """Cuts fields out of one graph. Levels that are the same array share their tensors."""

    def __init__(self, graph: Graph, depth: int) -> None:
        self.graph, self.deep = graph, depth >= DEEP
        self.everything = np.arange(graph.x.shape[0])
        self._known: dict[tuple[object, ...], Any] = {}

    def below(self, rows: np.ndarray) -> np.ndarray:
        """The level below ``rows``: the same array once there is nothing more to reach."""
        if rows is self.everything:
            return rows
        found = reached(self.graph.operator, rows)
        if len(found) == len(rows):
            return rows
        return self.everything if self.deep and len(found) >= NEARLY * len(self.everything) else found

    def field(self, levels: list[np.ndarray]) -> Field:
        """The field with these levels, input first."""
        graph, steps = self.graph, list(pairwise(levels))
        made = Field(
            nodes=[self._once("nodes", lambda x: torch.from_numpy(x).to(graph.device), level) for level in levels],
            hops=[self._once("hop", self._hop, *step) for step in steps],
            x=self._once("features", lambda level: Features(graph.x, level, graph.device), levels[0]),
            own=[None if below is above else _positions(above, below, graph) for below, above in steps],
            input_dropout=graph.input_dropout,
        )
        if steps:
            made.x1 = cache(lambda: Features(graph.x, levels[1], graph.device))
            made.ax = None if self.deep else _propagated(graph, levels[0], self._operator(*steps[0]), made.x.nnz)
        return made

    def _operator(self, below: np.ndarray, above: np.ndarray) -> sp.csr_matrix:
        return self.graph.operator[above][:, below]

    def _hop(self, below: np.ndarray, above: np.ndarray) -> Sparse:
        whole = self.graph.operator
        numbered = sp.csr_matrix((np.arange(whole.nnz), whole.indices, whole.indptr), whole.shape)
        made = Sparse.from_scipy(self._operator(below, above), self.graph.device)
        made.entries = torch.from_numpy(numbered[above][:, below].data.astype(np.int64)).to(self.graph.device)
        return made

    def _once(self, kind: str, make: Callable[..., T], *levels: np.ndarray) -> T:
        key = (kind, *map(id, levels))
        if key not in self._known:
            self._known[key] = (make(*levels), levels)  # the arrays live on, so no other gets their ids
        return self._known[key][0]


def _propagated(graph: Graph, below: np.ndarray, hop: sp.csr_matrix, features: int) -> Features | None:
    """A X for the rows of the first hop, if its product with W costs less than X W (``features`` entries) and then A (X W)."""
    entries = features + hop.nnz
    if hop.shape[0] * graph.x.shape[1] > 50 * entries and hop.nnz > 3 * hop.shape[0]:
        return None  # wide and scattered input: the product fills up, do not even form it
    product = (hop @ graph.x[below]).tocsr()
    return Features(product, np.arange(product.shape[0]), graph.device) if product.nnz < entries else None


def _positions(above: np.ndarray, below: np.ndarray, graph: Graph) -> Tensor:
    where = np.empty(graph.x.shape[0], dtype=np.int64)
    where[below] = np.arange(len(below))
    return torch.from_numpy(where[above]).to(graph.device)
