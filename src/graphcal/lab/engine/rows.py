"""Select rows of a sparse matrix, to fit on a few hundred nodes of a large graph.

`row_slice(adjacency, rows, logits)` cuts the rows of those nodes out of the adjacency and keeps the columns they read from, so
an epoch costs what the neighbourhood of the fitted nodes costs, not what the graph costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcal.lab.engine.sparse import Sparse
from graphcal.methods.solvers.node_order import canonical_order


@dataclass(frozen=True, eq=False)
class RowSlice:
    """``slice @ x[slice.cols]`` equals ``(matrix @ x)[rows]`` and back-propagates into x (r, D)."""

    matrix: Sparse  # (n, r)
    cols: Tensor  # (r,) the columns of the whole matrix that some row reads from

    def __matmul__(self, x: Tensor) -> Tensor:
        product: Tensor = self.matrix @ x[None]
        return product[0]


def rows_of(matrix: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Coordinates (row counted from 0, column, value) of the given rows of a CSR matrix."""
    start = matrix.crow_indices()[rows]
    length = matrix.crow_indices()[rows + 1] - start
    row = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), length)
    entry = (start - (length.cumsum(0) - length))[row] + torch.arange(len(row), device=rows.device)
    return row, matrix.col_indices()[entry], matrix.values()[entry]


def row_slice(matrix: Tensor, rows: Tensor, logits: Tensor) -> RowSlice:
    """The rows ``rows`` of a CSR matrix (N, N), in the precision of the logits (N, C), columns in their canonical order."""
    row, col, value = rows_of(matrix, rows)
    read = torch.zeros(matrix.shape[1], dtype=torch.bool, device=rows.device)
    read[col] = True
    cols = canonical_order(logits, read)
    position = torch.empty(matrix.shape[1], dtype=torch.long, device=rows.device)
    position[cols] = torch.arange(len(cols), device=rows.device)
    return RowSlice(_sparse(row, position[col], value.to(logits.dtype), (len(rows), len(cols))), cols)


def feature_rows(x: Tensor, rows: Tensor, like: Tensor) -> RowSlice | Tensor:
    """Rows of the node features for products with a weight: sparse where few entries are not zero, dense otherwise."""
    if x.layout == torch.sparse_csr:
        row, col, value = rows_of(x, rows)
    else:
        dense = x[rows]
        row, col = dense.nonzero(as_tuple=True)
        if len(row) > 0.1 * dense.numel():
            return dense.to(like)
        value = dense[row, col]
    cols = torch.arange(x.shape[1], device=rows.device)
    return RowSlice(_sparse(row, col, value.to(like), (len(rows), x.shape[1])), cols)


def _sparse(row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> Sparse:
    """A sparse matrix from coordinates that are sorted by row."""
    offsets = torch.cat([row.new_zeros(1), torch.bincount(row, minlength=shape[0]).cumsum(0)])
    return Sparse(offsets.int(), col.int(), value, shape)


def softmax_by_row(score: Tensor, row: Tensor, rows: int) -> Tensor:
    """softmax of the scores (e,) of the entries that share a row."""  # (e,)
    top = score.new_full((rows,), -torch.inf).scatter_reduce(0, row, score.detach(), "amax")
    weight = (score - top[row]).exp()
    return weight / score.new_zeros(rows).index_add(0, row, weight)[row]
