"""Does confidence rank right above wrong? Calibration says nothing about that, and a constant can be calibrated.

AUROC   probability that a right prediction has more confidence than a wrong one; a tie counts one half.
What the order is worth to a decision is in `selective`.
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


def auroc(log_probs: Tensor, y: Tensor) -> float:
    """Probability that confidence ranks a right prediction above a wrong one."""
    return auroc_of(*grouped(*outcomes(log_probs, y)))
