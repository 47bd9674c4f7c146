"""Proper scores as calibration and refinement: the parts add up, the scale is found."""

import math

import pytest
import torch
from known_truth import predictions
from scipy.optimize import minimize_scalar

from graphcal import metrics
from graphcal.metrics import inputs
from graphcal.metrics.refinement import best_scale, fold_scales


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


def test_each_fold_is_recalibrated_with_the_scale_of_the_others():
    log_probs, y = predictions(3001, C=4, scale=0.6)
    fold, left = torch.arange(3001) % 5, 0.0
    for k in range(5):
        rest = fold != k
        best = minimize_scalar(lambda s, rest=rest: metrics.nll((s * log_probs[rest]).log_softmax(1), y[rest]), (1, 2))
        left += float((~rest).sum()) * metrics.nll((best.x * log_probs[~rest]).log_softmax(1), y[~rest]) / 3001
    assert metrics.calibration_refinement(log_probs, y).nll_refinement == pytest.approx(left, abs=1e-7)


def test_chunks_and_single_precision_change_nothing(monkeypatch):
    log_probs, y = predictions(3001, C=4, scale=0.6)
    exact = vars(metrics.calibration_refinement(log_probs, y))
    monkeypatch.setattr(inputs, "CHUNK", 512)  # chunks cut the folds
    assert vars(metrics.calibration_refinement(log_probs, y)) == pytest.approx(exact, abs=1e-9)
    assert vars(metrics.calibration_refinement(log_probs.float(), y)) == pytest.approx(exact, abs=2e-6)


@pytest.mark.parametrize("scale", [0.05, 0.6, 20.0])
def test_the_scales_of_the_folds_are_those_of_the_other_folds(scale):
    log_probs, y = predictions(4000, scale=scale)
    fold = torch.arange(4000) % 5
    expected = [best_scale(log_probs[fold != k], y[fold != k]) for k in range(5)]
    assert fold_scales(log_probs, y, 5).tolist() == pytest.approx(expected, rel=2e-3)


def test_labels_of_probability_zero_do_not_break_the_scale():
    log_probs = torch.tensor([[0.0, -torch.inf], [-0.5, -0.9327521295671886]]).double().repeat(50, 1)
    y = torch.tensor([0, 1] * 50)
    assert 0.01 <= fold_scales(log_probs, y, 5).min() <= fold_scales(log_probs, y, 5).max() <= 100
    assert math.isfinite(metrics.calibration_refinement(log_probs.float(), y).nll_refinement)
