"""The input matrix X, sparse or dense, whichever multiplies faster, whole or with entries dropped out; and its first product.

    X W      d/dW = X^T G            on citation graphs 1 % of X is non-zero
    drop(X) W                        only the non-zero entries need random numbers

An entry's random byte is found by its place in the whole matrix, so it does not depend on the rows a pass computes.

There is no randomness before the first product of a pass, X W or A X W (unless the input is dropped out). Evaluating the state
after a step and training from it therefore have that product in common: the evaluation computes it for both, the training pass
finds it in the cache, by the weight and its version, so that a stale one cannot be used.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphcal.lab.engine.dropout import Dropout, kept_bytes, kept_scale, random_words
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
