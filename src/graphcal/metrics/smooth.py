"""Calibration error without bins: smooth ECE, and ECE by kernel density.

Smooth ECE (Błasiok & Nakkiran 2023, arXiv:2309.12236).  With a Gaussian kernel of width σ reflected at 0 and 1,
    r_σ(t) = 1/N Σ_i K_σ(t, c_i) (right_i - c_i),     smECE_σ = ∫ |r_σ(t)| dt,
and smECE is the one width that equals the error it gives: smECE_σ = σ. The reflected Gaussian is the heat kernel of [0, 1]
with insulated ends, so it is diagonal in the cosine basis: the k-th coefficient is multiplied by exp(-(πkσ)²/2).

KDE-ECE (Zhang, Kailkhura & Han 2020, arXiv:2003.07329).  With a triweight kernel mirrored at 0 and 1,
    ∫ |z - π(z)| p(z) dz,     p(z) = 1/N Σ_i K_h(z - c_i),   π(z) p(z) = 1/N Σ_i K_h(z - c_i) right_i.
The kernel's standard deviation is sd(c) (2N)^{-1/5}, as in the authors' code.
Departures: the official KDE code takes that deviation over right predictions only (a later line overwrites the first);
here over all nodes. Both errors are computed on a grid of 4,096 cells, so their state is additive and of fixed size.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.fft import dct, idct
from torch import Tensor

from graphcal.metrics.inputs import Array, RowChunk, map_reduce

CELLS = 4096


def on_grid(conf: Array, *weights: Array) -> Array:
    """(1 + weights, CELLS) number of nodes and sums of weights, each shared linearly between the two nearest cell centres."""
    position = np.clip(conf * CELLS - 0.5, 0, CELLS - 1)
    left = np.minimum(position.astype(np.int64), CELLS - 2)
    share = position - left

    def sums(right: Array, all_of_it: Array) -> Array:
        total = np.bincount(left, all_of_it - right, minlength=CELLS)
        total[1:] += np.bincount(left, right, minlength=CELLS)[:-1]
        return total

    return np.stack([sums(share, np.ones_like(share)), *(sums(w * share, w) for w in weights)])


def grids(rows: RowChunk) -> Array:
    """(3, CELLS) nodes, right predictions and sums of right - c on the grid."""
    right = rows.right.astype(np.float64)
    return on_grid(rows.conf, right, right - rows.conf)


def smooth_ece_of(residual: Array) -> float:
    """smECE of residuals right - c on the grid, divided by the number of nodes."""
    coefficients = dct(residual, type=2, norm="ortho")
    k = np.arange(CELLS)

    def error(width: float) -> float:
        return float(np.abs(idct(coefficients * np.exp(-0.5 * (math.pi * k * width) ** 2), type=2, norm="ortho")).sum())

    low, high = 0.0, 1.0  # error(width) falls, width rises: one crossing
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if error(middle) > middle else (low, middle)
    return (low + high) / 2


def kde_ece_of(count: Array, right: Array) -> float:
    """KDE-ECE of the nodes and the right predictions on the grid."""
    z, N = (np.arange(CELLS) + 0.5) / CELLS, count.sum()
    mean = (count * z).sum() / N
    sd = math.sqrt(max(0.0, (count * z**2).sum() / N - mean**2)) * (2 * N) ** -0.2
    reach = max(1, math.ceil(3 * sd * CELLS))  # a triweight of deviation sd ends at 3 sd
    u = np.arange(-reach, reach + 1) / (3 * max(sd, 1 / (3 * CELLS)) * CELLS)
    kernel = np.clip(1 - u**2, 0, None) ** 3
    kernel /= kernel.sum()

    def smoothed(values: Array) -> Array:
        return np.convolve(np.pad(values, reach, mode="symmetric"), kernel, mode="valid")

    p, pi_p = smoothed(count) / N, smoothed(right) / N
    return float(np.abs(z * p - pi_p).sum())


def smooth_ece(log_probs: Tensor, y: Tensor) -> float:
    """Smooth calibration error of the predicted class; no bins to choose."""
    _, _, residual = map_reduce(log_probs, y, grids)
    return smooth_ece_of(residual / len(y))


def kde_ece(log_probs: Tensor, y: Tensor) -> float:
    """Calibration error of the predicted class by kernel density."""
    count, right, _ = map_reduce(log_probs, y, grids)
    return kde_ece_of(count, right)
