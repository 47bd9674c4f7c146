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
