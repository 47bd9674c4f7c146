"""What of a proper score is calibration, what is refinement?

A proper loss is what a recalibration of the same outputs would leave (refinement) plus what it would remove (calibration):
    loss(p) = [loss(p) - loss(g(p))] + loss(g(p)),      g the best recalibration
(Berta, Holzmüller, Jordan & Bach 2025, arXiv:2501.19195). g is a temperature here, p^s / Σ p^s, one parameter, fitted by
NLL and cross-fitted: each fifth of the nodes is recalibrated with the s of the other four, so that the two parts
are not flattered. The calibration part may be slightly negative when nothing is to be repaired.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcal.metrics.inputs import check
from graphcal.metrics.scores import brier_terms, nll_terms

LOWEST = -100.0  # log-probability below which a class counts as impossible: keeps 0 · log 0 out of the slope


@dataclass(frozen=True)
class CalibrationRefinement:
    """Two proper scores, each as calibration + refinement."""

    nll_calibration: float
    nll_refinement: float
    brier_calibration: float
    brier_refinement: float


def slope(z: Tensor, y: Tensor, s: float) -> float:
    """d NLL / ds = Σ_i (E_p z_i - z_i[y_i]) at scale s; it rises with s because NLL is convex in s."""
    p = (s * z).softmax(dim=1)
    return float(((p * z).sum(dim=1) - z.gather(1, y[:, None])[:, 0]).sum())


def best_scale(log_probs: Tensor, y: Tensor) -> float:
    """The s of p^s / Σ p^s with the smallest NLL, by bisection in log s between 1/100 and 100."""
    z = log_probs.double().clamp(min=LOWEST)
    low, high = -4.61, 4.61
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(z, y, float(torch.tensor(middle).exp())) < 0 else (low, middle)
    return float(torch.tensor((low + high) / 2).exp())


def recalibrated(log_probs: Tensor, y: Tensor, folds: int = 5) -> Tensor:
    """Log-probabilities with each fold's scale taken from the other folds."""
    fold = torch.arange(len(y), device=y.device) % folds
    out = log_probs.double().clamp(min=LOWEST)
    for k in range(min(folds, len(y))):
        rest = fold != k
        s = best_scale(log_probs[rest], y[rest].long()) if bool(rest.any()) else 1.0
        out[~rest] = (s * out[~rest]).log_softmax(dim=1)
    return out


def calibration_refinement(log_probs: Tensor, y: Tensor) -> CalibrationRefinement:
    """NLL and Brier as what recalibration removes and what it leaves."""
    check(log_probs, y)
    better = recalibrated(log_probs, y)
    left_nll, left_brier = float(nll_terms(better, y).mean()), float(brier_terms(better, y).mean())
    return CalibrationRefinement(
        float(nll_terms(log_probs, y).mean()) - left_nll,
        left_nll,
        float(brier_terms(log_probs, y).mean()) - left_brier,
        left_brier,
    )
