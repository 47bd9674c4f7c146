"""Nothing but log-probabilities and class numbers is measured."""

import pytest
import torch
from known_truth import predictions

from graphcal import metrics

FUNCTIONS = [
    metrics.accuracy,
    metrics.aurc,
    metrics.auroc,
    metrics.brier,
    metrics.calibration_test,
    metrics.classwise_ece,
    metrics.ece,
    metrics.ece_debiased,
    metrics.ece_interval,
    metrics.evaluate,
    metrics.gate,
    metrics.kde_ece,
    metrics.mce,
    metrics.nll,
    metrics.reliability,
    metrics.smooth_ece,
    metrics.split,
    metrics.top_label_ece,
    metrics.Tally.of,
]


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__qualname__)
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda lp, y: (lp.exp(), y), "holds probabilities"),
        (lambda lp, y: (lp * 2 + 1, y), "log_softmax"),
        (lambda lp, y: (lp.masked_fill(torch.arange(len(lp))[:, None] == 3, float("nan")), y), "NaN in 1 of"),
        (lambda lp, y: (lp, y + 1), r"0\.\.4, got values from 1 to 5"),
        (lambda lp, y: (lp, y.masked_fill(y == 0, -1)), "left out with the mask"),
        (lambda lp, y: (lp, y[:-1]), "shape"),
        (lambda lp, y: (lp, y.double()), "integer class numbers"),
        (lambda lp, y: (lp[:0], y[:0]), "at least one node"),
    ],
    ids=["probabilities", "logits", "nan", "too large", "unlabelled", "length", "float labels", "empty"],
)
def test_wrong_input_is_refused(f, spoil, message):
    log_probs, y = spoil(*predictions(60))
    with pytest.raises(ValueError, match=message):
        f(log_probs, y)


def test_probability_zero_is_allowed_and_makes_nll_infinite():
    log_probs = torch.tensor([[1.0, 0.0], [0.5, 0.5]]).log()
    assert metrics.nll(log_probs, torch.tensor([1, 0])) == float("inf")
    assert metrics.ece(log_probs, torch.tensor([0, 0])) == pytest.approx(0.25)


@pytest.mark.parametrize("bins", [0, -1, 2.5, True])
def test_bins_must_be_a_positive_integer(bins):
    log_probs, y = predictions(60)
    with pytest.raises(ValueError, match="bins must be a positive integer"):
        metrics.ece(log_probs, y, bins)


def test_half_precision_is_accepted():
    log_probs, y = predictions(200)
    assert metrics.ece(log_probs.float(), y) == pytest.approx(metrics.ece(log_probs, y), abs=1e-3)


def test_a_mask_must_fit():
    log_probs, y = predictions(60)
    with pytest.raises(ValueError, match=r"mask must be a boolean tensor of shape \(60,\)"):
        metrics.evaluate(log_probs, y, torch.ones(59, dtype=torch.bool))
