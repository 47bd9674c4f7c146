"""Scales and mixtures: the best weights, predictions that are kept, log-odds at the edge of precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from graphcal.engine.scaling import log_odds, mixture, pooled, stack_weights, with_predictions


def test_log_odds_are_exact_where_the_softmax_rounds_to_one():
    z = torch.tensor([[40.0, 0.0, -3.0], [1.0, 2.0, 0.5]])
    p = z.double().softmax(-1)
    expected = torch.log(p) - torch.log(
        torch.stack([p[:, [1, 2]].sum(-1), p[:, [0, 2]].sum(-1), p[:, [0, 1]].sum(-1)], -1)
    )
    torch.testing.assert_close(log_odds(z).double(), expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=6), st.floats(2**-10, 2**10, width=32))
def test_a_positive_scale_never_moves_a_prediction(logits, scale):
    z = torch.tensor([logits])
    kept = with_predictions((scale * z).log_softmax(-1), z.argmax(-1))
    assert kept.argmax(-1).equal(z.argmax(-1))
    torch.testing.assert_close(kept, (scale * z).log_softmax(-1))


def test_the_weights_are_those_of_another_solver():
    g = torch.Generator().manual_seed(0)
    likelihood = torch.rand(200, 3, generator=g, dtype=torch.double)
    prior = torch.tensor([2.0, 1.0, 1.0], dtype=torch.double)
    found = stack_weights(likelihood.log(), prior)
    p, a = likelihood.numpy(), prior.numpy()

    def loss(free):
        e = torch.tensor(free).softmax(0).numpy()
        return -(a @ np.log(e)) - float(np.log(p @ e).sum())

    other = torch.tensor(minimize(loss, [0.0, 0.0, 0.0]).x).softmax(0)
    torch.testing.assert_close(found, other, atol=1e-3, rtol=1e-3)


def test_the_better_member_gets_the_weight_and_the_prior_holds_it_back():
    good, bad = torch.full((100,), -0.1), torch.full((100,), -2.0)
    label = torch.stack([bad, good], 1).double()
    alone = stack_weights(label, torch.tensor([0.0, 0.0], dtype=torch.double))
    drawn = stack_weights(label, torch.tensor([50.0, 0.0], dtype=torch.double))
    assert alone[1] > 0.999
    assert 0.5 < drawn[1] < 0.8


def test_a_mixture_of_probabilities():
    log_probs = torch.tensor([[[0.2, 0.8]], [[0.6, 0.4]]]).log()
    assert mixture(log_probs, torch.tensor([0.25, 0.75])).exp().tolist() == [pytest.approx([0.5, 0.5])]
    assert mixture(log_probs, torch.tensor([0.0, 1.0])).exp().tolist() == [pytest.approx([0.6, 0.4])]


def test_pooling_by_hand():
    p = torch.tensor([[0.1, 0.6, 0.3], [0.05, 0.5, 0.45], [0.7, 0.2, 0.1], [0.3, 0.4, 0.3]], dtype=torch.double)
    found = pooled(p.log(), torch.zeros(4, dtype=torch.long)).exp()
    expected = [[0.35, 0.35, 0.3], [1 / 3, 1 / 3, 1 / 3], [0.7, 0.2, 0.1], [0.35, 0.35, 0.3]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.double))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 8), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_pooling_keeps_the_prediction_and_is_nearest(seed, classes, dtype):
    g = torch.Generator().manual_seed(seed)
    log_probs = (3 * torch.randn(20, classes, generator=g, dtype=torch.double)).log_softmax(-1)
    pred = torch.randint(0, classes, (20,), generator=g)
    found = pooled(log_probs, pred)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(20, dtype=torch.double))
    kept = with_predictions(found.to(dtype), pred)
    assert torch.equal(kept.argmax(-1), pred)
    assert torch.equal(kept.exp().argmax(-1), pred)  # as a user reads it
    # no distribution that keeps the prediction explains p better
    p = log_probs.exp()
    best = (p * found).sum(-1)
    for _ in range(20):
        other = torch.rand(20, classes, generator=g, dtype=torch.double).softmax(-1)
        mixed = 0.95 * found.exp() + 0.05 * pooled(other.log(), pred).exp()
        assert ((p * mixed.log()).sum(-1) <= best + 1e-9).all()
