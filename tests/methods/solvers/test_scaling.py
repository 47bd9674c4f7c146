"""Scales that keep predictions, log-odds at the edge of precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcal.methods.solvers.scaling import break_ties, keep_top, log_odds


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
    kept = break_ties((scale * z).log_softmax(-1), z.argmax(-1))
    assert kept.argmax(-1).equal(z.argmax(-1))
    torch.testing.assert_close(kept, (scale * z).log_softmax(-1))


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_near_ties_stay_decided_after_exp(dtype):
    """Equal log-probabilities whose second class has the larger logit: it leads in logarithms and in probabilities."""
    tied = torch.linspace(-math.log(10), -math.log(2), 5001).to(dtype).expand(2, -1)
    logits = torch.tensor([[0.0], [1.0]]).to(dtype).expand(2, 5001)
    kept = keep_top(tied, logits)
    assert (kept[1] > kept[0]).all()
    for probs in (kept.exp(), torch.from_numpy(np.exp(kept.numpy()))):
        assert (probs[1] > probs[0]).all()
