"""Two bands for a reliability diagram. They answer different questions and are never drawn under one name.

Interval of a bin (Clopper & Pearson 1934): where may the bin's true accuracy lie, given r right of n?
    lo = Beta(α/2; r, n - r + 1),   hi = Beta(1 - α/2; r + 1, n - r)
It is exact: it contains the true accuracy with at least the stated probability. Draw it around the observed accuracy.

Consistency band (Bröcker & Smith 2007): where would the observed accuracy lie, were the model calibrated?
    quantiles of Binomial(n, conf_b) / n
Draw it around the diagonal; a calibrated model stays inside it in 95 % of its bins. The binomial at the mean confidence
is a trifle wider than the exact law of a bin with unequal confidences.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from graphcal.metrics.bins import Reliability


def accuracy_interval(rel: Reliability, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """Clopper-Pearson interval for the true accuracy of each bin; NaN where a bin is empty."""
    n, r, tail = rel.count.numpy(), rel.right_sum.numpy(), (1 - level) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(r > 0, stats.beta.ppf(tail, r, n - r + 1), 0.0)
        high = np.where(r < n, stats.beta.ppf(1 - tail, r + 1, n - r), 1.0)
    empty = n == 0
    return torch.from_numpy(np.where(empty, np.nan, low)), torch.from_numpy(np.where(empty, np.nan, high))


def consistency_band(rel: Reliability, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """Where the observed accuracy of each bin would lie, were the model calibrated; NaN where a bin is empty."""
    n, conf, tail = rel.count.round().numpy(), rel.conf.numpy(), (1 - level) / 2
    full = n > 0
    low, high = np.full(n.shape, np.nan), np.full(n.shape, np.nan)
    low[full] = stats.binom.ppf(tail, n[full], conf[full].clip(0, 1)) / n[full]
    high[full] = stats.binom.ppf(1 - tail, n[full], conf[full].clip(0, 1)) / n[full]
    return torch.from_numpy(low), torch.from_numpy(high)
