"""Does confidence rank right above wrong? Calibration says nothing about that, and a constant can be calibrated.

AUROC   probability that a right prediction has more confidence than a wrong one; a tie counts one half.
AURC    1/N Σ_k (error rate among the k most confident nodes): the area under the risk-coverage curve
        (Geifman, Uziel & El-Yaniv 2019, arXiv:1805.08206). Smaller is better. Nodes of equal confidence enter in
        every order, on average.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcal.metrics.bins import outcomes


def grouped(conf: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and right predictions for each distinct confidence, most confident first."""
    value, place = conf.unique(return_inverse=True)  # ascending
    count = torch.bincount(place, minlength=len(value)).double()
    good = torch.bincount(place, weights=right, minlength=len(value))
    return count.flip(0), good.flip(0)


def auroc_of(count: Tensor, good: Tensor) -> float:
    """AUROC from nodes and right predictions by confidence, most confident first; NaN when all are right or wrong."""
    bad = count - good
    above = good.cumsum(0) - good / 2  # right predictions above each wrong one, ties half
    return float((above * bad).sum() / (good.sum() * bad.sum()))


def aurc_of(count: Tensor, good: Tensor) -> float:
    """AURC from nodes and right predictions by confidence, most confident first."""
    bad, before = count - good, count.cumsum(0) - count
    wrong = (bad.cumsum(0) - bad).repeat_interleave(count.long())  # wrong ones above the tie
    rate = (bad / count.clamp(min=1)).repeat_interleave(count.long())
    N = int(count.sum())
    k = torch.arange(1, N + 1, dtype=torch.float64)
    inside = k - before.repeat_interleave(count.long())  # how many of the tie are in
    return float(((wrong + inside * rate) / k).mean())


def aurc_of_cells(count: Tensor, good: Tensor) -> float:
    """AURC from nodes by cell of confidence, most confident first; within a cell ∫ (wrong + x rate) / (before + x) dx."""
    count, good = count[count > 1e-9], good[count > 1e-9]
    bad, before = count - good, count.cumsum(0) - count
    rate, wrong = bad / count, bad.cumsum(0) - bad
    start = torch.where(before > 0, ((before + count) / before.clamp(min=1e-300)).log(), torch.zeros_like(before))
    return float((rate * count + (wrong - rate * before) * start).sum() / count.sum())


def auroc(log_probs: Tensor, y: Tensor) -> float:
    """Probability that confidence ranks a right prediction above a wrong one."""
    return auroc_of(*grouped(*outcomes(log_probs, y)))


def aurc(log_probs: Tensor, y: Tensor) -> float:
    """Area under the risk-coverage curve of the confidence."""
    return aurc_of(*grouped(*outcomes(log_probs, y)))
