"""Does confidence rank right above wrong? Calibration says nothing about that, and a constant can be calibrated.

AUROC   probability that a right prediction has more confidence than a wrong one; a tie counts one half.
What the order is worth to a decision is in `selective`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphcal.metrics.bins import outcomes


def grouped(conf: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and right predictions for each distinct confidence, most confident first."""
    ordered = np.sort(conf.numpy())
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] > ordered[:-1]]))  # of each distinct value
    value, count = ordered[first], np.diff(first, append=len(ordered))
    good = np.bincount(np.searchsorted(value, np.sort(conf[right > 0].numpy())), minlength=len(value))
    return torch.from_numpy(count[::-1].astype(np.float64)), torch.from_numpy(good[::-1].astype(np.float64))


def auroc_of(count: Tensor, good: Tensor) -> float:
    """AUROC from nodes and right predictions by confidence, most confident first; NaN when all are right or wrong."""
    bad = count - good
    above = good.cumsum(0) - good / 2  # right predictions above each wrong one, ties half
    return float((above * bad).sum() / (good.sum() * bad.sum()))


def auroc(log_probs: Tensor, y: Tensor) -> float:
    """Probability that confidence ranks a right prediction above a wrong one."""
    return auroc_of(*grouped(*outcomes(log_probs, y)))
