"""The product that passes share: never a stale one."""

import numpy as np
import torch
from gradients import example, same_value_and_gradients

from graphcal.engine.features import Features
from graphcal.engine.first_product import FirstProductCache, differentiable_first_product
from graphcal.engine.sparse import Sparse


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
    for known in (None, dense @ weight):
        ours = lambda w, known=known: differentiable_first_product(features, hop, w, known)  # noqa: E731
        same_value_and_gradients(ours, lambda w: dense @ w, weight)
