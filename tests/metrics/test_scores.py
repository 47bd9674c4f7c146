"""Scores by hand: class-wise, top-label, degree-binned, AURC, and the split of proper scores."""

import itertools

import pytest
import torch
from known_truth import binary, predictions

from graphcal import metrics
from graphcal.metrics.refinement import best_scale

LOG_PROBS = torch.tensor(
    [[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.7, 0.1]], dtype=torch.float64
).log()
Y = torch.tensor([0, 1, 1, 0])


def test_classwise_ece_by_hand():
    # two bins: class 0 has {.1, .2} with one label and {.6, .7} with one; class 1 {.2, .3} with one, {.7, .8} with one;
    # class 2 has {.1, .1, .1, .1} with none
    expected = (abs(1 - 0.3) + abs(1 - 1.3) + abs(1 - 0.5) + abs(1 - 1.5) + 0.4) / (4 * 3)
    assert metrics.classwise_ece(LOG_PROBS, Y, bins=2) == pytest.approx(expected)


def test_top_label_ece_by_hand():
    # bin (.5, 1]: predicted 0 has .7 right and .6 wrong, predicted 1 has .8 right and .7 wrong
    assert metrics.top_label_ece(LOG_PROBS, Y, bins=2) == pytest.approx((abs(1 - 1.3) + abs(1 - 1.5)) / 4)
    assert metrics.ece(LOG_PROBS, Y, bins=2) == pytest.approx(abs(2 - 2.8) / 4)


def test_degree_binned_error_by_hand():
    degree = torch.tensor([5, 1, 1, 9])  # two pieces: degrees {1, 1} and {5, 9}
    expected = (abs((0 - 0.6) + (1 - 0.8)) + abs((1 - 0.7) + (0 - 0.7))) / 4
    assert metrics.degree_binned_error(LOG_PROBS, Y, degree, bins=2) == pytest.approx(expected)


def test_degree_binned_error_is_blind_to_what_ece_sees():
    conf = torch.tensor([0.95, 0.55] * 50, dtype=torch.float64)
    right = torch.tensor([0.0, 1.0] * 50)
    right[0:100:4], right[1:100:4] = 1.0, 1.0  # .95 is right half the time, .55 always
    log_probs, y = binary(conf, right)
    assert metrics.ece(log_probs, y) == pytest.approx(0.45)
    assert metrics.degree_binned_error(log_probs, y, torch.arange(100) // 20, bins=5) < 1e-9


def test_degree_must_fit():
    with pytest.raises(ValueError, match="degree must have one entry"):
        metrics.degree_binned_error(LOG_PROBS, Y, torch.ones(3))


def test_aurc_by_hand():
    log_probs, y = binary(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1.0, 0.0, 1.0, 1.0]))
    assert metrics.aurc(log_probs, y) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 4) / 4)


def test_aurc_of_ties_is_the_mean_over_their_orders():
    conf, right = [0.9, 0.7, 0.7, 0.7], [1.0, 0.0, 1.0, 1.0]
    areas = []
    for order in itertools.permutations([1, 2, 3]):
        wrong = torch.tensor([1 - right[0], *(1 - right[i] for i in order)]).cumsum(0)
        areas.append(float((wrong / torch.arange(1, 5)).mean()))
    ours = metrics.aurc(*binary(torch.tensor(conf), torch.tensor(right)))
    assert ours == pytest.approx(sum(areas) / len(areas))


def test_split_adds_up_and_finds_the_scale():
    log_probs, y = predictions(4000, scale=0.5)
    parts = metrics.split(log_probs, y)
    assert parts.nll_calibration + parts.nll_refinement == pytest.approx(metrics.nll(log_probs, y))
    assert parts.brier_calibration + parts.brier_refinement == pytest.approx(metrics.brier(log_probs, y))
    assert best_scale(log_probs, y) == pytest.approx(2.0, rel=0.08)
    calibrated, y = predictions(4000, scale=1.0)
    assert parts.nll_refinement == pytest.approx(metrics.nll(calibrated, y), abs=2e-3)
    assert parts.nll_calibration > 0.1
    assert abs(metrics.split(calibrated, y).nll_calibration) < 2e-3


def test_best_scale_is_the_minimum():
    log_probs, y = predictions(500, scale=1.4)
    s = best_scale(log_probs, y)
    losses = [metrics.nll((k * log_probs).log_softmax(1), y) for k in (s * 0.99, s, s * 1.01)]
    assert losses[1] == min(losses)
