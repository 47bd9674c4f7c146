"""The input matrix: two forms that agree, dropout of its entries, and the first product that passes share."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from gradients import example, same_value_and_gradients

from graphcal.lab.engine.layers import Dropout
from graphcal.lab.engine.receptive import Features, FirstProductCache, differentiable_first_product
from graphcal.lab.engine.sparse import Sparse

CPU = torch.device("cpu")


@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
def test_features_choose_a_form_and_agree(density):
    matrix = example(40, 30, density)
    rows = np.array([5, 1, 30, 2])
    part = Features(matrix, rows, CPU)
    assert (part.dense is not None) == (density > 0.5)
    x, w, g = torch.from_numpy(matrix.toarray())[rows], torch.randn(2, 30, 6), torch.randn(2, 4, 6)
    assert torch.allclose(part.times(w), x @ w, atol=1e-5)
    assert torch.allclose(part.transpose_times(g), x.T @ g, atol=1e-5)
    assert torch.equal(part.rows, x)


def test_input_dropout_drops_entries_by_their_place_in_the_whole_matrix():
    matrix = sp.random(300, 50, 0.2, format="csr", dtype=np.float32, random_state=np.random.default_rng(1))
    drop = Dropout([0, 1], 2)
    everything = Features(matrix, np.arange(300), CPU)
    kept = everything.dropped(drop, 0.25)  # (2, nnz)
    share = float((kept == 0).float().mean())
    assert share == pytest.approx(0.25, abs=0.02)
    assert torch.allclose(kept[kept > 0], (everything.sparse.values / 0.75).expand(2, -1)[kept > 0])
    rows = np.array([250, 3])
    part = Features(matrix, rows, CPU).dropped(drop, 0.25)
    expected = torch.cat([kept[:, everything.sparse.rows == row] for row in rows], 1)
    assert torch.equal(part, expected)


def test_the_product_with_dropped_entries_has_the_gradient_of_the_dense_one():
    matrix, drop = example(20, 10), Dropout([3, 4], 1)
    part = Features(matrix, np.arange(20), CPU)
    dropped = torch.zeros(2, 20, 10)
    dropped[:, part.sparse.rows, part.sparse.cols] = part.dropped(drop, 0.5)
    ours = lambda w: part.dropped_times(w, drop, 0.5)  # noqa: E731
    same_value_and_gradients(ours, lambda w: dropped @ w, torch.randn(2, 10, 4))


def test_a_product_is_found_only_for_the_same_weight_unchanged():
    cache, weight = FirstProductCache(), torch.nn.Parameter(torch.ones(2))
    cache.put(weight, "ax", torch.zeros(1))
    assert cache.get(weight, "ax") is not None
    assert cache.get(weight, "x0") is None
    assert cache.get(torch.nn.Parameter(torch.ones(2)), "ax") is None
    with torch.no_grad():
        weight.add_(1)
    assert cache.get(weight, "ax") is None


def test_the_gradient_is_that_of_the_plain_product_whether_its_value_is_known_or_not():
    x, a = example(7, 6, seed=1), example(9, 7)
    features, hop = Features(x, np.arange(7), torch.device("cpu")), Sparse.from_scipy(a, "cpu")
    dense = torch.from_numpy((a @ x).toarray())
    weight = torch.randn(2, 6, 3)
    for product in (None, dense @ weight):
        ours = lambda w, product=product: differentiable_first_product(features, hop, w, product)  # noqa: E731
        same_value_and_gradients(ours, lambda w: dense @ w, weight)
