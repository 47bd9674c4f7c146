"""Proper scores as calibration and refinement: the parts add up, the scale is found."""

import pytest
from known_truth import predictions

from graphcal import metrics
from graphcal.metrics.refinement import best_scale


def test_the_parts_add_up_and_finds_the_scale():
    log_probs, y = predictions(4000, scale=0.5)
    parts = metrics.calibration_refinement(log_probs, y)
    assert parts.nll_calibration + parts.nll_refinement == pytest.approx(metrics.nll(log_probs, y))
    assert parts.brier_calibration + parts.brier_refinement == pytest.approx(metrics.brier(log_probs, y))
    assert best_scale(log_probs, y) == pytest.approx(2.0, rel=0.08)
    calibrated, y = predictions(4000, scale=1.0)
    assert parts.nll_refinement == pytest.approx(metrics.nll(calibrated, y), abs=2e-3)
    assert parts.nll_calibration > 0.1
    assert abs(metrics.calibration_refinement(calibrated, y).nll_calibration) < 2e-3


def test_best_scale_is_the_minimum():
    log_probs, y = predictions(500, scale=1.4)
    s = best_scale(log_probs, y)
    losses = [metrics.nll((k * log_probs).log_softmax(1), y) for k in (s * 0.99, s, s * 1.01)]
    assert losses[1] == min(losses)
