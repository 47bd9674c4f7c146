"""Split a proper score into calibration and refinement.

A proper loss is what a recalibration of the same outputs would leave (refinement) plus what it would remove (calibration):
    loss(p) = [loss(p) - loss(g(p))] + loss(g(p)),      g the best recalibration
(Berta, Holzmüller, Jordan & Bach 2025, arXiv:2501.19195). g is a temperature here, p^s / Σ p^s, one parameter, fitted by
NLL and cross-fitted: each fifth of the nodes is recalibrated with the s of the other four, so that the two parts
are not flattered. The calibration part may be slightly negative when nothing is to be repaired.

The slopes of all folds are sums over chunks of rows, from one pass. Newton's method finds the s of all nodes, and goes on from
there for each fold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch import Tensor

from graphcal.metrics.inputs import Array, RowChunk, map_reduce
from graphcal.metrics.scores import losses

SCALES = (math.exp(-4.61), math.exp(4.61))  # that are searched
LOG_IMPOSSIBLE = -100.0  # log-probability below which a class counts as impossible: keeps 0 · log 0 out of the slope


@dataclass(frozen=True)
class CalibrationRefinement:
    """Two proper scores, each as calibration + refinement."""

    nll_calibration: float
    nll_refinement: float
    brier_calibration: float
    brier_refinement: float


def root_of(slopes: Callable[[float], Array], s: float = 1.0) -> float:
    """The s between 1/100 and 100 with slope 0: Newton's steps, halving where one leaves the bracket.

    ``slopes`` gives the slope and its derivative at an s. A step of 0.1 % is the last one: the next would be its square.
    """
    low, high = SCALES
    for _ in range(60):
        first, second = slopes(s).tolist()
        low, high = (s, high) if first < 0 else (low, s)
        step = s - first / second if second > 0 else low
        last, s = s, step if low < step < high else (low * high) ** 0.5
        if abs(s - last) <= 1e-3 * s:
            break
    return s


def derivatives(log_probs: Tensor, y: Tensor, s: float, folds: int) -> Array:
    """(2, folds) first and second derivative of the sum of NLL in s, by fold, from one pass."""

    def of_chunk(rows: RowChunk) -> Array:
        z = np.maximum(rows.by_class, LOG_IMPOSSIBLE)
        p = z * z.dtype.type(s)
        p -= p.max(axis=0)
        np.exp(p, out=p)
        p /= p.sum(axis=0)
        p *= z
        mean = p.sum(axis=0, dtype=np.float64)
        p *= z
        square = p.sum(axis=0, dtype=np.float64) - mean**2
        mean -= np.maximum(rows.of_label, LOG_IMPOSSIBLE)
        fold = (rows.start + np.arange(len(mean))) % folds
        return np.stack([np.bincount(fold, values, minlength=folds) for values in (mean, square)])

    return map_reduce(log_probs, y, of_chunk)


def best_scale(log_probs: Tensor, y: Tensor) -> float:
    """The s of p^s / Σ p^s with the smallest NLL, between 1/100 and 100."""
    return root_of(lambda s: derivatives(log_probs, y, s, 1)[:, 0])


def fold_scales(log_probs: Tensor, y: Tensor, folds: int) -> Array:
    """(folds,) the scale of each fold, fitted on the others; 1 where there are none."""
    if len(y) == 1:
        return np.ones(folds)
    at = lru_cache(lambda s: derivatives(log_probs, y, s, folds))

    def of_others(fold: int, start: float) -> float:
        return root_of(lambda s: at(s).sum(1) - at(s)[:, fold], start)

    start = root_of(lambda s: at(s).sum(1))
    return np.array([of_others(fold, start) for fold in range(folds)])


def losses_at(log_probs: Tensor, y: Tensor, scales: Array) -> tuple[float, float]:
    """NLL and Brier when each row has the scale of its fold."""

    def of_chunk(rows: RowChunk) -> Array:
        z = np.maximum(rows.by_class, LOG_IMPOSSIBLE)
        z *= scales.astype(z.dtype)[(rows.start + np.arange(z.shape[1])) % len(scales)]
        z -= z.max(axis=0)
        p = np.exp(z)
        total = p.sum(axis=0)
        p /= total
        of_label, log = (np.take_along_axis(values, rows.y[None], axis=0)[0].astype(np.float64) for values in (p, z))
        square = sum(float(np.dot(one, one)) for one in p.astype(np.float64))
        return np.array([(np.log(total) - log).sum(), square - 2 * of_label.sum() + len(of_label)])

    nll, brier = (map_reduce(log_probs, y, of_chunk) / len(y)).tolist()
    return nll, brier


def calibration_refinement(log_probs: Tensor, y: Tensor, folds: int = 5) -> CalibrationRefinement:
    """NLL and Brier as what recalibration removes and what it leaves."""
    nll, brier = losses(log_probs, y)
    left_nll, left_brier = losses_at(log_probs, y, fold_scales(log_probs, y, folds))
    return CalibrationRefinement(nll - left_nll, left_nll, brier - left_brier, left_brier)
