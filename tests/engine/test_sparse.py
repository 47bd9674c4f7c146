"""Sparse products, their gradients, and the two ways to compute them."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphcal.engine.features import Features
from graphcal.engine.receptive import Shared
from graphcal.engine.sparse import Sparse, sampled
from graphcal.models import sparse


@pytest.fixture(params=["stacked", "looped"])
def way(request, monkeypatch):
    if request.param == "looped":
        monkeypatch.setattr(sparse, "STACKED", 0)


def example(rows=9, cols=7, density=0.4, seed=0):
    made = sp.random(rows, cols, density, dtype=np.float32, random_state=np.random.default_rng(seed)).toarray()
    made[3] = 0  # an empty row
    return sp.csr_matrix(made)


def checked(function, reference, *inputs):
    """Same value and same gradients as the reference."""
    results = []
    for f in (function, reference):
        leaves = [t.clone().requires_grad_() for t in inputs]
        out = f(*leaves)
        weights = torch.arange(out.numel(), dtype=out.dtype).view(out.shape).sin()
        (out * weights).sum().backward()
        results.append([out.detach(), *[leaf.grad for leaf in leaves]])
    for mine, theirs in zip(*results):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_product(way):
    matrix = example()
    ours, dense = Sparse.from_scipy(matrix, "cpu"), torch.from_numpy(matrix.toarray())
    checked(lambda h: ours @ h, lambda h: dense @ h, torch.randn(3, 7, 5))


def test_product_with_values_of_each_member(way):
    matrix = example()
    ours = Sparse.from_scipy(matrix, "cpu")

    def reference(values, h):
        full = torch.zeros(3, 9, 7).index_put((torch.arange(3)[:, None], ours.rows, ours.cols), values.T)
        return full @ h

    checked(ours.weighted, reference, torch.randn(ours.nnz, 3), torch.randn(3, 7, 5))


def test_softmax_over_rows():
    ours = Sparse.from_scipy(example(), "cpu")

    def reference(scores):
        full = torch.full((9, 7, 2), -torch.inf).index_put((ours.rows, ours.cols), scores)
        return full.softmax(1)[ours.rows, ours.cols]

    scores = torch.randn(ours.nnz, 2) * 30  # large enough to overflow without the shift
    checked(ours.softmax, reference, scores)
    assert torch.isfinite(ours.softmax(scores * 100)).all()


@pytest.mark.parametrize("block", [1, 10, 10**6])
def test_attention_is_the_softmax_of_spread_scores_whatever_the_blocks(monkeypatch, block):
    monkeypatch.setattr(sparse, "BLOCK", block)
    ours = Sparse.from_scipy(example(), "cpu")

    def reference(by_row, by_col):
        return ours.softmax(torch.nn.functional.leaky_relu(ours.spread(by_row, by_col), 0.2))

    checked(lambda p, q: ours.attention(p, q, 0.2), reference, torch.randn(9, 2), torch.randn(7, 2))


def test_spread():
    ours = Sparse.from_scipy(example(), "cpu")
    checked(ours.spread, lambda p, q: p[ours.rows] + q[ours.cols], torch.randn(9, 2), torch.randn(7, 2))


@pytest.mark.parametrize("device_has_the_product", [True, False])
def test_entries_of_a_product_where_the_pattern_has_one(monkeypatch, device_has_the_product):
    def refuse(*_, **__):
        raise NotImplementedError("no such product here")

    if not device_has_the_product:
        monkeypatch.setattr(torch.sparse, "sampled_addmm", refuse)
    left, right = torch.randn(3, 4), torch.randn(5, 4)
    places = np.array([[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 1, 1, 0]], dtype=np.float32)  # the second row is empty
    found = sampled(Sparse.from_scipy(sp.csr_matrix(places), "cpu").pattern(1), left, right)
    whole = left @ right.T
    expected = torch.stack([whole[0, 1], whole[0, 4], whole[2, 0], whole[2, 2], whole[2, 3]])
    assert torch.allclose(found, expected, atol=1e-6)


def test_a_matrix_without_entries():
    ours = Sparse.from_scipy(sp.csr_matrix((4, 3), dtype=np.float32), "cpu")
    assert torch.equal(ours @ torch.ones(2, 3, 5), torch.zeros(2, 4, 5))


@pytest.mark.parametrize("density", [0.05, 0.9], ids=["sparse", "dense"])
def test_features_choose_a_form_and_agree(density):
    matrix = example(40, 30, density)
    rows = np.array([5, 1, 30, 2])
    part = Features(matrix, rows, torch.device("cpu"))
    assert (part.dense is not None) == (density > 0.5)
    x, w, g = torch.from_numpy(matrix.toarray())[rows], torch.randn(2, 30, 6), torch.randn(2, 4, 6)
    assert torch.allclose(part.times(w), x @ w, atol=1e-5)
    assert torch.allclose(part.transpose_times(g), x.T @ g, atol=1e-5)
    assert torch.equal(part.rows, x)


def test_a_shared_product_is_found_only_for_the_same_weight_unchanged():
    shared, weight = Shared(), torch.nn.Parameter(torch.ones(2))
    shared.keep(weight, "ax", torch.zeros(1))
    assert shared.find(weight, "ax") is not None
    assert shared.find(weight, "x0") is None
    assert shared.find(torch.nn.Parameter(torch.ones(2)), "ax") is None
    with torch.no_grad():
        weight.add_(1)
    assert shared.find(weight, "ax") is None
