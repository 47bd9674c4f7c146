"""Sparse products in the loops of graph calibrators: only the rows that are needed, with a gradient that is one more product.

Fitting looks at a few hundred nodes. `hearing(adjacency, targets)` cuts the rows of those nodes out of the adjacency and keeps
the columns they hear from, so an epoch costs what the neighbourhood of the fitted nodes costs, not what the graph costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphcal.engine.adam import in_order
from graphcal.graphs import csr


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, x: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transposed @ gradients[0].contiguous()


@dataclass(frozen=True, eq=False)
class Sparse:
    """A constant sparse matrix with its transpose: ``sparse @ x`` back-propagates into x."""

    matrix: Tensor  # (n, r) CSR
    transposed: Tensor  # (r, n) CSR

    def __matmul__(self, x: Tensor) -> Tensor:
        return _Product.apply(self.matrix, self.transposed, x)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, eq=False)
class Hearing(Sparse):
    """``hearing @ x[hearing.sources]`` equals ``(adjacency @ x)[targets]``."""

    sources: Tensor  # (r,) nodes that some target hears from


def rows_of(matrix: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Coordinates (row counted from 0, column, value) of the given rows of a CSR matrix."""
    start = matrix.crow_indices()[targets]
    length = matrix.crow_indices()[targets + 1] - start
    row = torch.repeat_interleave(torch.arange(len(targets), device=targets.device), length)
    entry = (start - (length.cumsum(0) - length))[row] + torch.arange(len(row), device=targets.device)
    return row, matrix.col_indices()[entry], matrix.values()[entry]


def hearing(adjacency: Tensor, targets: Tensor, logits: Tensor) -> Hearing:
    """The rows ``targets`` of ``adjacency`` (N, N), in the precision of ``logits``.

    Sources are sorted by their logits, so noise drawn for them does not depend on how nodes are numbered.
    """
    row, col, value = rows_of(adjacency, targets)
    heard = torch.zeros(adjacency.shape[1], dtype=torch.bool, device=targets.device)
    heard[col] = True
    sources = in_order(logits, heard)
    place = torch.empty(adjacency.shape[1], dtype=torch.long, device=targets.device)
    place[sources] = torch.arange(len(sources), device=targets.device)
    value = value.to(logits.dtype)
    size = (len(targets), len(sources))
    return Hearing(csr(row, place[col], value, size), csr(place[col], row, value, size[::-1]), sources)


def feature_rows(x: Tensor, nodes: Tensor, like: Tensor) -> Sparse | Tensor:
    """Rows of the node features for products with a weight: sparse where few entries are not zero, dense otherwise."""
    if x.layout == torch.sparse_csr:
        row, col, value = rows_of(x, nodes)
    else:
        rows = x[nodes]
        row, col = rows.nonzero(as_tuple=True)
        if len(row) > 0.1 * rows.numel():
            return rows.to(like)
        value = rows[row, col]
    size = (len(nodes), x.shape[1])
    value = value.to(like)
    return Sparse(csr(row, col, value, size), csr(col, row, value, size[::-1]))
