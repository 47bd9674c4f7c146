"""Rows of a sparse matrix: products and gradients are those of the whole."""

from __future__ import annotations

import pytest
import torch

from graphcal.graphs import structure
from graphcal.lab.engine.rows import feature_rows, row_slice, softmax_by_row
from small_outputs import dense_adjacency, model_outputs


def test_a_row_slice_is_the_rows_of_the_adjacency():
    out = model_outputs()
    targets = out.graph.val_mask.nonzero().flatten()[[3, 0, 7]]
    near = row_slice(structure(out.graph).adjacency, targets, out.logits)
    x = torch.randn(out.num_nodes, 2, requires_grad=True)
    expected = (dense_adjacency(out) @ x)[targets]
    torch.testing.assert_close(near @ x[near.cols], expected)
    weight = torch.randn_like(expected)
    (mine,) = torch.autograd.grad((near @ x[near.cols] * weight).sum(), x)
    (reference,) = torch.autograd.grad((expected * weight).sum(), x)
    torch.testing.assert_close(mine, reference)


@pytest.mark.parametrize("density", [0.02, 0.9])
def test_feature_rows_multiply_whatever_their_storage(density):
    g = torch.Generator().manual_seed(0)
    x = torch.rand(50, 30, generator=g) * (torch.rand(50, 30, generator=g) < density)
    nodes, weight = torch.tensor([4, 1, 30]), torch.randn(30, 3, generator=g)
    for stored in (x, x.to_sparse_csr()):
        torch.testing.assert_close(feature_rows(stored, nodes, x) @ weight, x[nodes] @ weight)


def test_softmax_by_row_sums_to_one_in_every_row():
    row = torch.tensor([0, 0, 2, 2, 2])
    score = torch.tensor([1.0, 2.0, 100.0, 100.0, -100.0])
    expected = torch.cat([score[:2].softmax(0), score[2:].softmax(0)])
    torch.testing.assert_close(softmax_by_row(score, row, 3), expected)
