"""Calibration errors and proper scores, as fractions. One definition for each quantity.

ECE       Σ_b n_b/N |acc_b - conf_b|                          Guo et al. 2017, arXiv:1706.04599, Eq. 3
MCE       max_b |acc_b - conf_b| over bins with a node        the same, Eq. 5; one node can make it 1
over      Σ_b n_b/N max(conf_b - acc_b, 0), under likewise    ECE = over + under, signed gap = under - over
class-wise ECE   1/C Σ_k Σ_b n_kb/N |freq_kb - p_kb|          Kull et al. 2019, arXiv:1910.12656: every class's own
                                                              probability in bins against how often the class occurs
top-label ECE    Σ_k Σ_b n_kb/N |acc_kb - conf_kb|            Gupta & Ramdas 2022, arXiv:2107.08353: confidence bins
                                                              apart for each predicted class k
NLL       -1/N Σ_i log p_i[y_i]
Brier     1/N Σ_i Σ_k (p_ik - [y_i = k])²                     sum over classes: between 0 and 2
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from graphcal.metrics.bins import Reliability, equal_width_bin, equal_width_edges, reliability
from graphcal.metrics.chunks import Rows, total
from graphcal.metrics.inputs import check


def ece_of(rel: Reliability) -> float:
    """Expected calibration error of a reliability table."""
    return float(rel.gap.abs().sum())


def mce_of(rel: Reliability) -> float:
    """Largest distance between accuracy and confidence of a bin."""
    return float((rel.accuracy - rel.conf).abs().nan_to_num(0.0).max())


def over_of(rel: Reliability) -> float:
    """The part of ECE from bins that claim more than they keep."""
    return float((-rel.gap).clamp(min=0).sum())


def under_of(rel: Reliability) -> float:
    """The part of ECE from bins that keep more than they claim."""
    return float(rel.gap.clamp(min=0).sum())


def ece(log_probs: Tensor, y: Tensor, bins: int = 20, scheme: str = "equal-width") -> float:
    """Expected calibration error of the predicted class: `ece_of` the reliability, from the sums it needs and no others."""
    if scheme != "equal-width":
        return ece_of(reliability(log_probs, y, bins, scheme))
    edges = equal_width_edges(bins)
    return float(np.abs(total(log_probs, y, lambda rows: gap_sums(rows, edges))).sum()) / len(y)


def mce(log_probs: Tensor, y: Tensor, bins: int = 20) -> float:
    """Maximum calibration error over the bins."""
    return mce_of(reliability(log_probs, y, bins))


def overconfidence(log_probs: Tensor, y: Tensor, bins: int = 20) -> float:
    """How much of the ECE is claiming too much."""
    return over_of(reliability(log_probs, y, bins))


def underconfidence(log_probs: Tensor, y: Tensor, bins: int = 20) -> float:
    """How much of the ECE is claiming too little."""
    return under_of(reliability(log_probs, y, bins))


def signed_gap(log_probs: Tensor, y: Tensor) -> float:
    """Accuracy minus mean confidence: positive is under-confident."""
    return float(reliability(log_probs, y, bins=1).gap.sum())


def gap_sums(rows: Rows, edges: Tensor) -> np.ndarray:
    """(B,) sums of right - c by bin."""
    return np.bincount(equal_width_bin(rows.conf, edges), rows.right - rows.conf, minlength=len(edges) - 1)


def classwise_gaps(rows: Rows, edges: Tensor) -> np.ndarray:
    """(C, B) sums of [y = k] - p_k by class and bin of p_k: the additive state of the class-wise ECE."""
    C, bins = len(rows.by_class), len(edges) - 1
    gaps = np.empty((C, bins))
    for k in range(C):
        p = np.minimum(np.exp(rows.by_class[k].astype(np.float64)), 1.0)
        gaps[k] = np.bincount(equal_width_bin(p, edges), (rows.y == k) - p, minlength=bins)
    return gaps


def top_label_gaps(rows: Rows, edges: Tensor) -> np.ndarray:
    """(C, B) sums of right - c by predicted class and confidence bin: the additive state of the top-label ECE."""
    C, bins = len(rows.by_class), len(edges) - 1
    cell = rows.pred.astype(np.int64) * bins + equal_width_bin(rows.conf, edges)
    return np.bincount(cell, rows.right - rows.conf, minlength=C * bins).reshape(C, bins)


def classwise_ece(log_probs: Tensor, y: Tensor, bins: int = 20) -> float:
    """Calibration error of every class's own probability, averaged over classes."""
    edges = equal_width_edges(bins)
    gaps = total(log_probs, y, lambda rows: classwise_gaps(rows, edges))
    return float(np.abs(gaps).sum()) / (len(y) * len(gaps))


def top_label_ece(log_probs: Tensor, y: Tensor, bins: int = 20) -> float:
    """Calibration error of the confidence given the predicted class."""
    edges = equal_width_edges(bins)
    return float(np.abs(total(log_probs, y, lambda rows: top_label_gaps(rows, edges))).sum()) / len(y)


def accuracy(log_probs: Tensor, y: Tensor) -> float:
    """Share of nodes whose most probable class is the label; the first class wins a tie."""
    check(log_probs, y)
    return float((log_probs.argmax(dim=1) == y).double().mean())


def nll_terms(log_probs: Tensor, y: Tensor) -> Tensor:
    """(N,) negative log-probability of each label; infinite where it was given probability 0."""
    return -log_probs.gather(1, y[:, None].long())[:, 0].double()


def brier_terms(log_probs: Tensor, y: Tensor) -> Tensor:
    """(N,) squared distance between probabilities and the one-hot label."""
    probs = log_probs.double().exp()  # (N, C)
    of_label = probs.gather(1, y[:, None].long())[:, 0]
    return (probs**2).sum(dim=1) - 2 * of_label + 1


def nll(log_probs: Tensor, y: Tensor) -> float:
    """Mean negative log-probability of the label."""
    check(log_probs, y)
    return float(nll_terms(log_probs, y).mean())


def brier(log_probs: Tensor, y: Tensor) -> float:
    """Mean squared distance between the probabilities and the one-hot label, summed over classes."""
    check(log_probs, y)
    return float(brier_terms(log_probs, y).mean())
