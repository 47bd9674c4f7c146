"""Split a proper score into calibration and refinement.

A proper loss is what a recalibration of the same outputs would leave (refinement) plus what it would remove (calibration):
    loss(p) = [loss(p) - loss(g(p))] + loss(g(p)),      g the best recalibration
(Berta, Holzmüller, Jordan & Bach 2025, arXiv:2501.19195). g is a temperature here, p^s / Σ p^s, one parameter, fitted by
NLL and cross-fitted: each fifth of the nodes is recalibrated with the s of the other four, so that the two parts
are not flattered. The calibration part may be slightly negative when nothing is to be repaired.

Many nodes.  Beyond `inputs.RESAMPLE_UP_TO` the scales come from sums over chunks: Newton's method finds the s of all nodes, and
one further step from there, with the sums of the other four fifths, the s of each fifth. They differ by some 1/√N, and what the
step leaves of that is its square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphcal.metrics import inputs
from graphcal.metrics.inputs import Array, RowChunk, map_reduce
from graphcal.metrics.scores import brier_terms, losses, nll_terms

SCALES = (math.exp(-4.61), math.exp(4.61))  # that are searched
LOG_IMPOSSIBLE = -100.0  # log-probability below which a class counts as impossible: keeps 0 · log 0 out of the slope


@dataclass(frozen=True)
class CalibrationRefinement:
    """Two proper scores, each as calibration + refinement."""

    nll_calibration: float
    nll_refinement: float
    brier_calibration: float
    brier_refinement: float


def slope(z: Tensor, label_sum: float, s: float) -> tuple[float, float]:
    """First and second derivative of NLL by s: Σ_i E_p z_i - own with own = Σ_i z_i[y_i], and Σ_i Var_p z_i > 0."""
    p = (s * z).softmax(dim=1)
    mean = (p * z).sum(dim=1)
    return float(mean.sum()) - label_sum, float((p * z.square()).sum() - mean.square().sum())


def best_scale(log_probs: Tensor, y: Tensor) -> float:
    """The s of p^s / Σ p^s with the smallest NLL, between 1/100 and 100: Newton's steps, halving where one leaves the bracket."""
    z = log_probs.double().clamp(min=LOG_IMPOSSIBLE)
    label_sum = float(z.gather(1, y[:, None]).sum())
    low, high, s = SCALES[0], SCALES[1], 1.0
    for _ in range(60):
        first, second = slope(z, label_sum, s)
        low, high = (s, high) if first < 0 else (low, s)
        step = s - first / second if second > 0 else low
        last, s = s, step if low < step < high else (low * high) ** 0.5
        if abs(s - last) <= 1e-12 * s:
            break
    return s


def recalibrated(log_probs: Tensor, y: Tensor, folds: int = 5) -> Tensor:
    """Log-probabilities with each fold's scale taken from the other folds."""
    fold = torch.arange(len(y), device=y.device) % folds
    out = log_probs.double().clamp(min=LOG_IMPOSSIBLE)
    for k in range(min(folds, len(y))):
        rest = fold != k
        s = best_scale(log_probs[rest], y[rest].long()) if bool(rest.any()) else 1.0
        out[~rest] = (s * out[~rest]).log_softmax(dim=1)
    return out


def scaled(z: Array, s: Array) -> Array:
    """(C, n) probabilities p^s / Σ p^s of log-probabilities z (C, n) at scales s (n,)."""
    p = s * z
    p -= p.max(axis=0)
    np.exp(p, out=p)
    p /= p.sum(axis=0)
    return p


def derivatives(log_probs: Tensor, y: Tensor, s: float, folds: int) -> Array:
    """(2, folds) first and second derivative of the sum of NLL in s, by fold, from one pass."""

    def of_chunk(rows: RowChunk) -> Array:
        z = np.maximum(rows.by_class, LOG_IMPOSSIBLE)
        p = scaled(z, np.full(z.shape[1], s, z.dtype))
        p *= z
        mean = p.sum(axis=0, dtype=np.float64)
        p *= z
        square = p.sum(axis=0, dtype=np.float64) - mean**2
        mean -= np.maximum(rows.of_label, LOG_IMPOSSIBLE)
        fold = (rows.start + np.arange(len(mean))) % folds
        return np.stack([np.bincount(fold, values, minlength=folds) for values in (mean, square)])

    return map_reduce(log_probs, y, of_chunk)


def fold_scales(log_probs: Tensor, y: Tensor, folds: int) -> Array:
    """(folds,) the scale of each fold, fitted on the others."""
    at, low, high = 0.0, -4.61, 4.61  # log s
    for _ in range(30):
        first, second = derivatives(log_probs, y, math.exp(at), folds)
        low, high = (at, high) if first.sum() < 0 else (low, at)
        step = at - first.sum() / max(second.sum() * math.exp(at), 1e-300)
        new = step if low < step < high else (low + high) / 2
        if abs(new - at) < 1e-4:  # Newton's next step would be its square
            break
        at = new
    first, second = (values.sum() - values for values in (first, second))  # of the other folds
    scales: Array = np.clip(math.exp(at) - first / np.maximum(second, 1e-300), 0.01, 100)
    return scales


def losses_at(log_probs: Tensor, y: Tensor, scales: Array) -> tuple[float, float]:
    """NLL and Brier when each row has the scale of its fold."""

    def of_chunk(rows: RowChunk) -> Array:
        z = np.maximum(rows.by_class, LOG_IMPOSSIBLE)
        fold = (rows.start + np.arange(z.shape[1])) % len(scales)
        p = scaled(z, scales.astype(z.dtype)[fold])
        of_label = np.take_along_axis(p, rows.y[None], axis=0)[0].astype(np.float64)
        square = sum(float(np.dot(one, one)) for one in p.astype(np.float64))
        return np.array([-np.log(of_label).sum(), square - 2 * of_label.sum() + len(of_label)])

    nll, brier = (map_reduce(log_probs, y, of_chunk) / len(y)).tolist()
    return nll, brier


def calibration_refinement(log_probs: Tensor, y: Tensor, folds: int = 5) -> CalibrationRefinement:
    """NLL and Brier as what recalibration removes and what it leaves."""
    nll, brier = losses(log_probs, y)
    if len(y) > inputs.RESAMPLE_UP_TO:
        left_nll, left_brier = losses_at(log_probs, y, fold_scales(log_probs, y, folds))
    else:
        better = recalibrated(log_probs, y, folds)
        left_nll, left_brier = float(nll_terms(better, y).mean()), float(brier_terms(better, y).mean())
    return CalibrationRefinement(nll - left_nll, left_nll, brier - left_brier, left_brier)
