"""Sparse products, their gradients, and the two ways to compute them."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from gradients import example, same_value_and_gradients

from graphcal.lab.engine import sparse
from graphcal.lab.engine.sparse import Sparse, sddmm


@pytest.fixture(params=["stacked", "looped"])
def way(request, monkeypatch):
    if request.param == "looped":
        monkeypatch.setattr(sparse, "STACKED", 0)


def test_product(way):
    matrix = example()
    ours, dense = Sparse.from_scipy(matrix, "cpu"), torch.from_numpy(matrix.toarray())
    same_value_and_gradients(lambda h: ours @ h, lambda h: dense @ h, torch.randn(3, 7, 5))


def test_product_with_values_of_each_member(way):
    matrix = example()
    ours = Sparse.from_scipy(matrix, "cpu")

    def reference(values, h):
        full = torch.zeros(3, 9, 7).index_put((torch.arange(3)[:, None], ours.rows, ours.cols), values.T)
        return full @ h

    same_value_and_gradients(ours.weighted, reference, torch.randn(ours.nnz, 3), torch.randn(3, 7, 5))


@pytest.mark.parametrize("device_has_the_product", [True, False])
def test_sddmm_gives_the_entries_of_a_product_where_the_matrix_has_one(way, monkeypatch, device_has_the_product):
    def refuse(*_, **__):
        raise NotImplementedError("no such product here")

    if not device_has_the_product:
        monkeypatch.setattr(torch.sparse, "sampled_addmm", refuse)
    left, right = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    places = np.array([[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 1, 1, 0]], dtype=np.float32)  # the second row is empty
    products = sddmm(Sparse.from_scipy(sp.csr_matrix(places), "cpu"), left, right)  # (nnz, 2)
    whole = left @ right.transpose(1, 2)
    expected = torch.stack([whole[:, 0, 1], whole[:, 0, 4], whole[:, 2, 0], whole[:, 2, 2], whole[:, 2, 3]])
    assert torch.allclose(products, expected, atol=1e-6)


def test_sums_over_rows_and_columns():
    ours = Sparse.from_scipy(example(), "cpu")
    values = torch.randn(ours.nnz, 2)
    by_row = torch.zeros(9, 2).index_add(0, ours.rows, values)
    assert torch.allclose(ours.row_sums(values), by_row, atol=1e-6)
    assert torch.allclose(ours.col_sums(values), torch.zeros(7, 2).index_add(0, ours.cols, values), atol=1e-6)
    some = slice(2, 6)
    part = values[(ours.rows >= 2) & (ours.rows < 6)]
    assert torch.allclose(ours.row_sums(part, some), by_row[some], atol=1e-6)


def test_a_matrix_without_entries():
    ours = Sparse.from_scipy(sp.csr_matrix((4, 3), dtype=np.float32), "cpu")
    assert torch.equal(ours @ torch.ones(2, 3, 5), torch.zeros(2, 4, 5))
    assert sddmm(ours, torch.ones(2, 4, 5), torch.ones(2, 3, 5)).shape == (0, 2)
