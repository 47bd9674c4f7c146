"""Attention on the entries of a sparse matrix: scores of edges, and their softmax over each row.

    edge_add       e = p[row_e] + q[col_e]
    edge_softmax   exp(s_e) / sum of exp(s) over the entries of e's row
    attention      edge_softmax(leaky_relu(edge_add(p, q))) in one function, block by block of rows

A pass over all entries and heads for each operation would wait for memory most of the time; the dozen steps of `attention` find
a block's numbers in a core's own cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

if TYPE_CHECKING:
    from graphcal.lab.engine.sparse import Sparse


def edge_add(matrix: Sparse, by_row: Tensor, by_col: Tensor) -> Tensor:
    """(n, B), (m, B) -> (nnz, B)"""
    out: Tensor = _EdgeAdd.apply(by_row, by_col, matrix)  # type: ignore[no-untyped-call]
    return out


def edge_softmax(matrix: Sparse, scores: Tensor) -> Tensor:
    """(nnz, B) -> (nnz, B)"""
    out: Tensor = _EdgeSoftmax.apply(scores, matrix)  # type: ignore[no-untyped-call]
    return out


def attention(matrix: Sparse, by_row: Tensor, by_col: Tensor, slope: float) -> Tensor:
    """(n, B), (m, B) -> (nnz, B)"""
    out: Tensor = _Attention.apply(by_row, by_col, matrix, slope)  # type: ignore[no-untyped-call]
    return out


class _EdgeAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, by_row: Tensor, by_col: Tensor, matrix: Sparse) -> Tensor:
        ctx.matrix = matrix
        return by_row[matrix.rows] + by_col[matrix.cols]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        return ctx.matrix.row_sums(grad), ctx.matrix.col_sums(grad), None


class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, matrix: Sparse) -> Tensor:
        top = scores.new_full((matrix.shape[0], scores.shape[1]), -torch.inf)
        top.scatter_reduce_(0, matrix.rows[:, None].expand_as(scores), scores, "amax")
        shares = (scores - top[matrix.rows]).exp_()
        shares /= matrix.row_sums(shares)[matrix.rows]
        ctx.matrix = matrix
        ctx.save_for_backward(shares)
        return shares

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (shares,) = ctx.saved_tensors
        weighted = shares * grad
        return weighted - shares * ctx.matrix.row_sums(weighted)[ctx.matrix.rows], None


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, by_row: Tensor, by_col: Tensor, matrix: Sparse, slope: float) -> Tensor:
        shares = by_row.new_empty(matrix.nnz, by_row.shape[1])
        for rows, entries in matrix.row_blocks(by_row.shape[1]):
            local = matrix.rows[entries] - rows.start
            score = leaky_relu(_scores(by_row, by_col, matrix, rows, entries), slope, inplace=True)
            top = score.new_full((rows.stop - rows.start, score.shape[1]), -torch.inf)
            top.scatter_reduce_(0, local[:, None].expand_as(score), score, "amax")
            score -= top.index_select(0, local)
            score.exp_()
            total = matrix.row_sums(score, rows)
            torch.div(score, total.index_select(0, local), out=shares[entries])
        ctx.matrix, ctx.slope = matrix, slope
        ctx.save_for_backward(by_row, by_col, shares)
        return shares

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        by_row, by_col, shares = ctx.saved_tensors
        matrix, along = ctx.matrix, torch.empty_like(shares)
        to_rows = torch.zeros_like(by_row)
        for rows, entries in matrix.row_blocks(by_row.shape[1]):
            local = matrix.rows[entries] - rows.start
            weighted = shares[entries] * grad[entries]
            total = matrix.row_sums(weighted, rows)
            weighted.addcmul_(shares[entries], total.index_select(0, local), value=-1)
            falling = _scores(by_row, by_col, matrix, rows, entries) < 0
            torch.where(falling, weighted * ctx.slope, weighted, out=along[entries])
            to_rows[rows] = matrix.row_sums(along[entries], rows)
        return to_rows, matrix.col_sums(along), None, None


def _scores(by_row: Tensor, by_col: Tensor, matrix: Sparse, rows: slice, entries: slice) -> Tensor:
    """p[row] + q[col] of a block's entries."""
    local = matrix.rows[entries] - rows.start
    return by_row[rows].index_select(0, local).add_(by_col.index_select(0, matrix.cols[entries]))
