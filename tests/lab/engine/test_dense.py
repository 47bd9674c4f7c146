"""Dense products with a replica axis: both ways of multiplying give the same, and a replica the same digits in any company."""

import pytest
import torch

from graphcal.lab.engine import dense


@pytest.fixture
def everything_is_large(monkeypatch):
    monkeypatch.setattr(dense, "LARGE", 1)


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_large_product_is_the_product(replicas, relu, everything_is_large):
    if dense._onednn() is None:
        pytest.skip("this torch has no oneDNN")
    x, weight = random(replicas, 300, 40), random(replicas, 40, 24, seed=1)
    expected = torch.einsum("rnd,rde->rne", x, weight)
    found = dense.product(x.float(), weight.float(), relu)
    assert found.shape == (replicas, 300, 24)
    assert torch.allclose(found.double(), expected.relu() if relu else expected, atol=1e-4)
    assert bool((found < 0).any()) is not relu


def test_a_transposed_weight_is_read_as_it_is(everything_is_large):
    x, weight = random(1, 50, 8).float(), random(1, 12, 8, seed=1).float()
    assert torch.allclose(dense.product(x, weight.transpose(1, 2)), x @ weight.transpose(1, 2), atol=1e-5)


@pytest.mark.parametrize("large", [1, 2**40])
def test_a_replica_has_the_same_digits_alone_and_among_others(large, monkeypatch):
    monkeypatch.setattr(dense, "LARGE", large)
    x, weight = random(4, 200, 32).float(), random(4, 32, 32, seed=1).float()
    together = dense.product(x, weight, relu=True)
    for r in range(4):
        assert torch.equal(dense.product(x[r : r + 1], weight[r : r + 1], relu=True)[0], together[r])


@pytest.mark.parametrize("replicas", [1, 7])
def test_the_way_depends_on_the_shape_of_one_replica(replicas, monkeypatch):
    """100 x 8 x 8 = 6,400 products of numbers, however many replicas there are."""
    taken = []

    def onednn(a, weight, bias, after, scalars, algorithm):
        taken.append(after)
        return a @ weight.T

    monkeypatch.setattr(dense, "_onednn", lambda: onednn)
    x, weight = random(replicas, 100, 8).float(), random(replicas, 8, 8).float()
    for large, count in ((6_401, 0), (6_400, replicas)):
        monkeypatch.setattr(dense, "LARGE", large)
        taken.clear()
        dense.product(x, weight, relu=True)
        assert taken == ["relu"] * count


def test_double_precision_stays_double(everything_is_large):
    x, weight = random(2, 30, 8), random(2, 8, 5, seed=1)
    assert torch.allclose(dense.product(x, weight), x @ weight, atol=1e-14)


def test_a_torch_without_onednn_multiplies_as_well(everything_is_large, monkeypatch):
    monkeypatch.setattr(dense, "_onednn", lambda: None)
    x, weight = random(2, 30, 8).float(), random(2, 8, 5, seed=1).float()
    assert torch.equal(dense.product(x, weight, relu=True), torch.bmm(x, weight).relu())
