"""Scores on the entries of a sparse matrix and their softmax, against dense formulas."""

import pytest
import torch
from gradients import example, same_value_and_gradients

from graphcal.lab.engine import sparse
from graphcal.lab.engine.sparse import Sparse


def test_softmax_over_rows():
    ours = Sparse.from_scipy(example(), "cpu")

    def reference(scores):
        full = torch.full((9, 7, 2), -torch.inf).index_put((ours.rows, ours.cols), scores)
        return full.softmax(1)[ours.rows, ours.cols]

    scores = torch.randn(ours.nnz, 2) * 30  # large enough to overflow without the shift
    same_value_and_gradients(ours.edge_softmax, reference, scores)
    assert torch.isfinite(ours.edge_softmax(scores * 100)).all()


def test_the_two_ends_of_an_edge_are_added():
    ours = Sparse.from_scipy(example(), "cpu")
    reference = lambda p, q: p[ours.rows] + q[ours.cols]  # noqa: E731
    same_value_and_gradients(ours.edge_add, reference, torch.randn(9, 2), torch.randn(7, 2))


@pytest.mark.parametrize("block", [1, 10, 10**6])
def test_attention_is_the_softmax_of_added_scores_whatever_the_blocks(monkeypatch, block):
    monkeypatch.setattr(sparse, "BLOCK", block)
    ours = Sparse.from_scipy(example(), "cpu")

    def reference(by_row, by_col):
        return ours.edge_softmax(torch.nn.functional.leaky_relu(ours.edge_add(by_row, by_col), 0.2))

    attend = lambda p, q: ours.attention(p, q, 0.2)  # noqa: E731
    same_value_and_gradients(attend, reference, torch.randn(9, 2), torch.randn(7, 2))
