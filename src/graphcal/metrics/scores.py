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

import torch
from torch import Tensor

from graphcal.metrics.bins import Reliability, bin_of, confidence, equal_width_edges, reliability
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
    """Expected calibration error of the predicted class."""
    return ece_of(reliability(log_probs, y, bins, scheme))


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


def cells(group: Tensor, b: Tensor, weights: Tensor, groups: int, bins: int) -> Tensor:
    """(groups, B) sums of `weights` by group and bin."""
    return torch.bincount(group * bins + b, weights=weights, minlength=groups * bins).view(groups, bins)


def classwise_gaps(log_probs: Tensor, y: Tensor, bins: int) -> Tensor:
    """(C, B) sums of [y = k] - p_k by class and bin of p_k: the additive state of the class-wise ECE."""
    C, edges = log_probs.shape[1], equal_width_edges(bins)
    gaps = []
    for k in range(C):
        p = log_probs[:, k].cpu().double().exp()
        gaps.append(torch.bincount(bin_of(p, edges), (y == k).cpu().double() - p, minlength=bins))
    return torch.stack(gaps)


def top_label_gaps(log_probs: Tensor, y: Tensor, bins: int) -> Tensor:
    """(C, B) sums of right - c by predicted class and confidence bin: the additive state of the top-label ECE."""
    conf, pred = (t.cpu() for t in confidence(log_probs))
    residual = (pred == y.cpu()).double() - conf
    return cells(pred, bin_of(conf, equal_width_edges(bins)), residual, log_probs.shape[1], bins)


def classwise_ece(log_probs: Tensor, y: Tensor, bins: int = 20) -> float:
    """Calibration error of every class's own probability, averaged over classes."""
    check(log_probs, y)
    return float(classwise_gaps(log_probs, y, bins).abs().sum()) / (len(y) * log_probs.shape[1])


def top_label_ece(log_probs: Tensor, y: Tensor, bins: int = 20) -> float:
    """Calibration error of the confidence given the predicted class."""
    check(log_probs, y)
    return float(top_label_gaps(log_probs, y, bins).abs().sum()) / len(y)


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
