"""The relatives of ECE: other bins, other groups of nodes, the same question.

MCE              max_b |acc_b - conf_b| over bins with a node   Guo et al. 2017, arXiv:1706.04599, Eq. 5; one node can make it 1
class-wise ECE   1/C Σ_k Σ_b n_kb/N |freq_kb - p_kb|            Kull et al. 2019, arXiv:1910.12656: every class's own
                                                                probability in bins against how often the class occurs
top-label ECE    Σ_k Σ_b n_kb/N |acc_kb - conf_kb|              Gupta & Ramdas 2022, arXiv:2107.08353: confidence bins
                                                                apart for each predicted class k
degree-binned    Σ_b n_b/N |acc_b - conf_b| over pieces of ceil(N/B) nodes sorted by degree: the "ECE" of GETS (Zhuang et al.,
                 ICLR 2025) and WATS (Li et al., ICLR 2026), under its own name. A model that is over-confident on hard
                 nodes and under-confident on easy ones of equal degree scores 0.
Departures: nodes of equal degree keep their order here; the official sort leaves it open.

Calibration error without bins: smooth ECE, and ECE by kernel density.

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
import torch
from torch import Tensor

from graphcal.metrics.bins import BINS, Reliability, equal_width_bin, equal_width_edges, outcomes, reliability
from graphcal.metrics.inputs import Array, RowChunk, check_bins, map_reduce


def mce_of(rel: Reliability) -> float:
    """Largest distance between accuracy and confidence of a bin."""
    return float((rel.accuracy - rel.conf).abs().nan_to_num(0.0).max())


def mce(log_probs: Tensor, y: Tensor, bins: int = BINS) -> float:
    """Maximum calibration error over the bins."""
    return mce_of(reliability(log_probs, y, bins))


def classwise_gaps(rows: RowChunk, edges: Tensor) -> Array:
    """(C, B) sums of [y = k] - p_k by class and bin of p_k: the additive state of the class-wise ECE."""
    C, bins = len(rows.by_class), len(edges) - 1
    gaps = np.empty((C, bins))
    for k in range(C):
        p = np.minimum(np.exp(rows.by_class[k].astype(np.float64)), 1.0)
        gaps[k] = np.bincount(equal_width_bin(p, edges), (rows.y == k) - p, minlength=bins)
    return gaps


def top_label_gaps(rows: RowChunk, edges: Tensor) -> Array:
    """(C, B) sums of right - c by predicted class and confidence bin: the additive state of the top-label ECE."""
    C, bins = len(rows.by_class), len(edges) - 1
    cell = rows.pred.astype(np.int64) * bins + equal_width_bin(rows.conf, edges)
    return np.bincount(cell, rows.right - rows.conf, minlength=C * bins).reshape(C, bins)


def ece_classwise(log_probs: Tensor, y: Tensor, bins: int = BINS) -> float:
    """Calibration error of every class's own probability, averaged over classes."""
    edges = equal_width_edges(bins)
    gaps = map_reduce(log_probs, y, lambda rows: classwise_gaps(rows, edges))
    return float(np.abs(gaps).sum()) / (len(y) * len(gaps))


def ece_top_label(log_probs: Tensor, y: Tensor, bins: int = BINS) -> float:
    """Calibration error of the confidence given the predicted class."""
    edges = equal_width_edges(bins)
    return float(np.abs(map_reduce(log_probs, y, lambda rows: top_label_gaps(rows, edges))).sum()) / len(y)


def degree_binned_error(log_probs: Tensor, y: Tensor, degree: Tensor, bins: int = 10) -> float:
    """GETS/WATS "ECE": mean |accuracy - confidence| over equal-count bins of node degree. Not comparable with `ece`."""
    check_bins(bins)
    conf, right = outcomes(log_probs, y)
    if degree.shape != y.shape:
        raise ValueError(
            f"degree must have one entry for each row of log_probs, {tuple(y.shape)}, got {tuple(degree.shape)}"
        )
    residual = (right - conf)[degree.cpu().argsort(stable=True)]
    piece = torch.arange(len(y)) // math.ceil(len(y) / bins)
    return float(torch.bincount(piece, weights=residual).abs().sum()) / len(y)


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
    from scipy.fft import dct, idct  # takes a while to import

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
