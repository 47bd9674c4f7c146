"""Compute only the rows that a pass needs: products of the input features with the first weights, and receptive fields.

*Features*: X as a matrix, sparse or dense, and its product with the first weights W, with or without dropout.

    X W      d/dW = X^T G            on citation graphs 1 % of X is non-zero
    drop(X) W                        only the non-zero entries need random numbers

An entry's random byte is a function of its position in the whole matrix, so it does not depend on the rows a pass computes.

There is no randomness before the first product of a pass, X W or A X W (unless the input is dropped out). Evaluating the state
after a step and training from it therefore have that product in common: the evaluation computes it for both, the training pass
finds it in the cache, by the weight and its version, so that a stale one cannot be used.

*Receptive fields*: which rows a pass has to compute to know the outputs of some nodes.

    nodes[K] = the output nodes,  nodes[k] = nodes[k+1] and all they read,  hops[k] = A[nodes[k+1], nodes[k]]

A training step needs the logits of the training nodes only, early stopping those of the validation nodes only: with 20 labels
per class on a citation graph that is a small part of the rows and of the dropout numbers. A deep model reads all it can reach:
its last levels are cut, those before are one set of nodes (a third of Citeseer is in components without a label) with one
operator.

`full_graph` is a pass over the whole graph; `receptive_fields` are the two passes of an epoch. A X is formed beforehand where
its product with W has fewer entries than X W and then A (X W). The first product is shared between passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphcal.lab.engine.layers import Dropout, kept_bytes, kept_scale, random_words
from graphcal.lab.engine.sparse import Sparse, spmm

DENSE_FROM = 0.3  # share of non-zero entries from which a dense product is the faster one
INPUT_LAYER = 0  # the layer number of input dropout


class Features:
    """Rows ``rows`` of the matrix ``whole``."""

    def __init__(self, whole: sp.csr_matrix, rows: np.ndarray[Any, np.dtype[np.int64]], device: torch.device) -> None:
        part = whole[rows] if len(rows) else whole[:0]
        self.shape = part.shape
        self.nnz = part.nnz
        self._first = whole.indptr[rows]  # where each row's entries begin in the whole matrix
        self._lengths = np.diff(part.indptr)
        self._device = device
        self.sparse = Sparse.from_scipy(part, device)
        full = part.nnz > DENSE_FROM * max(1, part.shape[0] * part.shape[1])
        self.dense = torch.from_numpy(part.toarray().astype(np.float32)).to(device) if full else None
        self._places: tuple[Tensor, Tensor] | None = None

    def times(self, weight: Tensor) -> Tensor:
        """(n, F) @ (R, F, H) -> (R, n, H), without gradient"""
        return spmm(self.sparse, weight) if self.dense is None else self.dense @ weight

    def transpose_times(self, grad: Tensor) -> Tensor:
        """(F, n) @ (R, n, H) -> (R, F, H), without gradient"""
        return spmm(self.sparse.transpose, grad) if self.dense is None else self.dense.T @ grad

    @cached_property
    def rows(self) -> Tensor:
        """The matrix as a plain tensor."""  # (n, F)
        if self.dense is not None:
            return self.dense
        plain = torch.zeros(self.shape, device=self._device)
        plain[self.sparse.rows, self.sparse.cols] = self.sparse.values
        return plain

    def dropped(self, drop: Dropout, p: float) -> Tensor:
        """The entries after dropout, each replica's own."""  # (R, nnz)
        words, bytes_ = self._entry_places()
        numbers = random_words(drop.keys(INPUT_LAYER, self._device), words)  # (R, words)
        kept = kept_bytes(numbers, round(256 * p))[:, bytes_]  # (R, nnz)
        return kept.float() * (self.sparse.values * kept_scale(p))

    def dropped_times(self, weight: Tensor, drop: Dropout, p: float) -> Tensor:
        """dropout(X) @ W, differentiable in W"""
        product: Tensor = _DroppedProduct.apply(weight, self.sparse, self.dropped(drop, p))  # type: ignore[no-untyped-call]
        return product

    def _entry_places(self) -> tuple[Tensor, Tensor]:
        """The words that hold these rows' entries, and each entry's byte among those words' bytes."""
        if self._places is None:
            within = np.arange(self.nnz) - np.repeat(np.cumsum(self._lengths) - self._lengths, self._lengths)
            entries = np.repeat(self._first.astype(np.int64), self._lengths) + within
            words, inverse = np.unique(entries // 8, return_inverse=True)
            places = (torch.from_numpy(words), torch.from_numpy(inverse * 8 + entries % 8))
            self._places = (places[0].to(self._device), places[1].to(self._device))
        return self._places


class _DroppedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: Sparse, values: Tensor) -> Tensor:
        ctx.matrix = matrix
        ctx.save_for_backward(values)
        return spmm(matrix, weight, values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (values,) = ctx.saved_tensors
        return spmm(ctx.matrix.transpose, grad, values[:, ctx.matrix.order]), None, None


class FirstProductCache:
    """First products, each with the weight it was made from."""

    def __init__(self) -> None:
        self._products: dict[tuple[int, str], tuple[Tensor, int, Tensor]] = {}

    def put(self, weight: Tensor, kind: str, product: Tensor) -> None:
        self._products[id(weight), kind] = (weight, weight._version, product)

    def get(self, weight: Tensor, kind: str) -> Tensor | None:
        of, version, product = self._products.get((id(weight), kind), (None, -1, None))
        return product if of is weight and version == weight._version else None

    def clear(self) -> None:
        self._products.clear()


def first_product(x: Features, hop: Sparse | None, weight: Tensor) -> Tensor:
    """X W, or A X W with a hop, without gradient."""  # (R, n, H)
    product = x.times(weight)
    return product if hop is None else spmm(hop, product)


def differentiable_first_product(
    x: Features, hop: Sparse | None, weight: Tensor, product_cache: Tensor | None
) -> Tensor:
    """The same with a gradient in W; a value that is known already is not computed again."""
    product: Tensor = _FirstProduct.apply(weight, x, hop, product_cache)  # type: ignore[no-untyped-call]
    return product


class _FirstProduct(torch.autograd.Function):
    """The gradient in W is X^T A^T G."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Features, hop: Sparse | None, product_cache: Tensor | None) -> Tensor:
        ctx.x, ctx.hop = x, hop
        return first_product(x, hop, weight) if product_cache is None else product_cache.view_as(product_cache)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        if ctx.hop is not None:
            grad = spmm(ctx.hop.transpose, grad)
        return ctx.x.transpose_times(grad), None, None, None


T = TypeVar("T")
Nodes = np.ndarray[Any, np.dtype[np.int64]]

# hops; in a deeper field most levels are nearly the whole graph
DEEP = 4
# of the nodes: such a level of a deep field is made the whole graph, so that all below share one operator
NEARLY = 0.9


@dataclass(eq=False)
class ReceptiveField:
    """Input rows of one pass, and the hops from there to the output nodes."""

    nodes: Sequence[Tensor]  # K + 1 index tensors, input first
    hops: Sequence[Sparse]  # K operators, hops[k]: (len nodes[k+1], len nodes[k])
    x: Features  # rows nodes[0] of the input
    # [k]: where nodes[k+1] stand in nodes[k], a slice if they are its first; None when the two are the same
    self_index: Sequence[Tensor | slice | None]
    output_index: Tensor | None = None  # where the output nodes stand in the last level; None: they are all of it
    x1: Callable[[], Features] | None = None  # rows nodes[1] of the input, made when first needed
    ax: Features | None = None  # rows nodes[1] of A X, where that is the cheaper way
    input_dropout: float = 0.0
    first_products: FirstProductCache = field(default_factory=FirstProductCache)
    fills_cache: bool = False  # a validation field: its first products are the ones that are shared

    def project(self, weight: Tensor, drop: Dropout | None = None, level: int = 0) -> Tensor:
        """X W for the rows nodes[level], level 0 or 1"""  # (R, n, H)
        x = self.x if level == 0 or self.x1 is None else self.x1()
        if drop is not None and self.input_dropout > 0:
            return x.dropped_times(weight, drop, self.input_dropout)
        return self._first_product(x, None, weight, f"x{level}")

    def propagate(self, weight: Tensor, drop: Dropout | None = None) -> Tensor:
        """A X W for the rows nodes[1]"""  # (R, n, H)
        if drop is not None and self.input_dropout > 0:
            return self.hops[0] @ self.x.dropped_times(weight, drop, self.input_dropout)
        if self.ax is not None:
            return self._first_product(self.ax, None, weight, "ax")
        return self._first_product(self.x, self.hops[0], weight, "ax")

    def select_self(self, h: Tensor, level: int) -> Tensor:
        """The rows of nodes[level + 1], out of those of nodes[level]"""
        index = self.self_index[level]
        return h if index is None else h[:, index]

    def select_output(self, h: Tensor) -> Tensor:
        """The rows of the output nodes, out of those of the last level"""
        return h if self.output_index is None else h[:, self.output_index]

    @property
    def output_nodes(self) -> Tensor:
        """The nodes whose outputs the pass computes."""
        return self.nodes[-1] if self.output_index is None else self.nodes[-1][self.output_index]

    def _first_product(self, x: Features, hop: Sparse | None, weight: Tensor, kind: str) -> Tensor:
        if not torch.is_grad_enabled():
            product = first_product(x, hop, weight)
            if self.fills_cache:
                self.first_products.put(weight, kind, product)
            return product
        cached = self.first_products.get(weight, kind)
        rows = x.shape[0] if hop is None else hop.shape[0]
        return differentiable_first_product(x, hop, weight, None if cached is None else cached[:, :rows])


@dataclass(frozen=True, eq=False)
class GraphInput:
    """Inputs of a model from a graph, from which receptive fields are cut."""

    operator: sp.csr_matrix  # (N, N) what a node reads
    x: sp.csr_matrix  # (N, F)
    device: torch.device
    input_dropout: float = 0.0


def full_graph(graph: GraphInput, depth: int) -> ReceptiveField:
    """The field of a pass over the whole graph."""
    all_nodes = np.arange(graph.x.shape[0])
    hop = Sparse.from_scipy(graph.operator, graph.device)
    nodes = torch.from_numpy(all_nodes).to(graph.device)
    return ReceptiveField(
        nodes=[nodes] * (depth + 1),
        hops=[hop] * depth,
        x=Features(graph.x, all_nodes, graph.device),
        self_index=[None] * depth,
        input_dropout=graph.input_dropout,
    )


def receptive_fields(graph: GraphInput, train: Nodes, stop: Nodes, depth: int) -> tuple[ReceptiveField, ReceptiveField]:
    """The fields of a training pass and of a validation pass over the nodes ``train`` and ``stop``.

    The first two levels of the second begin with those of the first, so that the first product of the second can be cut for
    the first.
    """
    share, cutter = graph.input_dropout == 0, _Cutter(graph, depth)
    train_levels, stop_levels = [np.asarray(train)], [np.asarray(stop)]
    if depth == 0 and share:
        stop_levels = [np.concatenate([train, stop])]
    for level in reversed(range(depth)):
        train_levels.insert(0, cutter.level_below(train_levels[0]))
        needed = cutter.level_below(stop_levels[0])
        if level <= 1 and share and needed is not train_levels[0]:
            needed = np.concatenate([train_levels[0], np.setdiff1d(needed, train_levels[0])])
        stop_levels.insert(0, needed)
    train_field, stop_field = cutter.field(train_levels), cutter.field(stop_levels)
    if depth == 0 and share:
        stop_field.output_index = torch.arange(len(train), len(train) + len(stop), device=graph.device)
    stop_field.first_products, stop_field.fills_cache = train_field.first_products, share
    return train_field, stop_field


class _Cutter:
    """Cuts fields out of one graph. Levels that are the same array share their tensors."""

    def __init__(self, graph: GraphInput, depth: int) -> None:
        self.graph, self.deep = graph, depth >= DEEP
        self.all_nodes = np.arange(graph.x.shape[0])
        self._made: dict[tuple[object, ...], Any] = {}

    def level_below(self, rows: Nodes) -> Nodes:
        """``rows`` and every node they read, sorted: the same array once there is nothing more to reach."""
        if rows is self.all_nodes:
            return rows
        reached = np.union1d(rows, self.graph.operator[rows].indices)
        if len(reached) == len(rows):
            return rows
        return self.all_nodes if self.deep and len(reached) >= NEARLY * len(self.all_nodes) else reached

    def field(self, levels: list[Nodes]) -> ReceptiveField:
        """The field with these levels, input first."""
        graph, steps = self.graph, list(pairwise(levels))
        made = ReceptiveField(
            nodes=[self._once("nodes", lambda x: torch.from_numpy(x).to(graph.device), level) for level in levels],
            hops=[self._once("hop", self._hop, *step) for step in steps],
            x=self._once("features", lambda level: Features(graph.x, level, graph.device), levels[0]),
            self_index=[None if below is above else _positions(above, below, graph) for below, above in steps],
            input_dropout=graph.input_dropout,
        )
        if steps:
            made.x1 = cache(lambda: Features(graph.x, levels[1], graph.device))
            made.ax = None if self.deep else _propagated(graph, levels[0], self._operator(*steps[0]), made.x.nnz)
        return made

    def _operator(self, below: Nodes, above: Nodes) -> sp.csr_matrix:
        return self.graph.operator[above][:, below]

    def _hop(self, below: Nodes, above: Nodes) -> Sparse:
        whole = self.graph.operator
        numbered = sp.csr_matrix((np.arange(whole.nnz), whole.indices, whole.indptr), whole.shape)
        made = Sparse.from_scipy(self._operator(below, above), self.graph.device)
        made.entries = torch.from_numpy(numbered[above][:, below].data.astype(np.int64)).to(self.graph.device)
        return made

    def _once(self, kind: str, make: Callable[..., T], *levels: Nodes) -> T:
        key = (kind, *map(id, levels))
        if key not in self._made:
            self._made[key] = (make(*levels), levels)  # the arrays live on, so no other gets their ids
        made: T = self._made[key][0]
        return made


def _propagated(graph: GraphInput, below: Nodes, hop: sp.csr_matrix, x_entries: int) -> Features | None:
    """A X for the rows of the first hop, if its product with W costs less than X W (``x_entries``) and then A (X W)."""
    entries = x_entries + hop.nnz
    if hop.shape[0] * graph.x.shape[1] > 50 * entries and hop.nnz > 3 * hop.shape[0]:
        return None  # wide and scattered input: the product fills up, do not even form it
    product = (hop @ graph.x[below]).tocsr()
    return Features(product, np.arange(product.shape[0]), graph.device) if product.nnz < entries else None


def _positions(above: Nodes, below: Nodes, graph: GraphInput) -> Tensor:
    """Positions of the nodes ``above`` in ``below``."""
    where = np.empty(graph.x.shape[0], dtype=np.int64)
    where[below] = np.arange(len(below))
    return torch.from_numpy(where[above]).to(graph.device)
