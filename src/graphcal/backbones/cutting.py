"""Cutting receptive fields out of a graph.

`whole` is a pass over the whole graph; `fields` are the two passes of an epoch, over what the training nodes and the
validation nodes read. A X is formed beforehand where its product with W has fewer entries than X W and then A (X W).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphcal.backbones.features import Features
from graphcal.backbones.fields import Field, Shared
from graphcal.backbones.sparse import Sparse


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
        made.x1 = cache(lambda: Features(graph.x, levels[1], graph.device))
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
