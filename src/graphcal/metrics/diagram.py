"""A reliability diagram as numbers: bins, two bands, and the ECE they give.

The two bands answer different questions and are never drawn under one name.

Interval of a bin (Clopper & Pearson 1934): where may the bin's true accuracy lie, given r right of n?
    lo = Beta(α/2; r, n - r + 1),   hi = Beta(1 - α/2; r + 1, n - r)
It is exact: it contains the true accuracy with at least the stated probability. Draw it around the observed accuracy.

Consistency band (Bröcker & Smith 2007): where would the observed accuracy lie, were the model calibrated?
    quantiles of Binomial(n, conf_b) / n
Draw it around the diagonal; a calibrated model stays inside it in 95 % of its bins. The binomial at the mean confidence
is a trifle wider than the exact law of a bin with unequal confidences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor

from graphcal.metrics.bins import (
    Reliability,
    equal_mass_edges,
    equal_width_edges,
    mean_reliability,
    tally,
)
from graphcal.metrics.floor import debiased_of, floor_of
from graphcal.metrics.inputs import Array
from graphcal.metrics.scores import ece_of


def accuracy_interval(rel: Reliability, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """Clopper-Pearson interval for the true accuracy of each bin; NaN where a bin is empty."""
    ends = np.stack(clopper_pearson(rel.count.numpy(), rel.right_sum.numpy(), level))
    low, high = torch.from_numpy(ends).masked_fill(rel.count == 0, float("nan"))
    return low, high


def clopper_pearson(count: Array, right: Array, level: float = 0.95) -> tuple[Array, Array]:
    """Interval for the true share of which `right` of `count` were seen; from 0 to 1 where there are none."""
    tail = (1 - level) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(right > 0, betaincinv(right, count - right + 1, tail), 0.0)
        high = np.where(right < count, betaincinv(right + 1, count - right, 1 - tail), 1.0)
    return low, high


def consistency_band(rel: Reliability, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """Interval of each bin's observed accuracy if the model were calibrated; NaN where a bin is empty."""
    from scipy.stats import binom  # takes half a second to import

    n, conf, tail = rel.count.round().numpy(), rel.conf.numpy(), (1 - level) / 2
    full = n > 0
    low, high = np.full(n.shape, np.nan), np.full(n.shape, np.nan)
    low[full] = binom.ppf(tail, n[full], conf[full].clip(0, 1)) / n[full]
    high[full] = binom.ppf(1 - tail, n[full], conf[full].clip(0, 1)) / n[full]
    return torch.from_numpy(low), torch.from_numpy(high)


@dataclass(frozen=True, eq=False)
class Diagram:
    """One choice of bins: the mean reliability over seeds, and the means of what each seed gives in these bins."""

    reliability: Reliability
    ece: float
    ece_floor: float
    ece_debiased: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, those of a bin to five digits; null for an empty bin."""
        rel = self.reliability
        return {
            "convention": rel.convention,
            "edges": rounded(rel.edges),
            "count": rounded(rel.count),
            "confidence": rounded(rel.conf),
            "accuracy": rounded(rel.accuracy),
            "band": [rounded(side) for side in consistency_band(rel)],
            "interval": [rounded(side) for side in accuracy_interval(rel)],
            "ece": self.ece,
            "ece_floor": self.ece_floor,
            "ece_debiased": self.ece_debiased,
        }


def diagram_of(seeds: Sequence[tuple[Tensor, Tensor]], bins: int, scheme: str) -> Diagram:
    """The diagram of several seeds, each by confidence and rightness (N,); equal-mass edges are those of all seeds together."""
    pooled = scheme == "equal-mass"
    edges = equal_mass_edges(torch.cat([conf for conf, _ in seeds]), bins) if pooled else equal_width_edges(bins)
    parts = [tally(conf, right, edges, scheme) for conf, right in seeds]
    return Diagram(
        mean_reliability(parts),
        fmean(ece_of(part) for part in parts),
        fmean(floor_of(conf, edges) for conf, _ in seeds),
        fmean(debiased_of(part) for part in parts),
    )


def rounded(values: Tensor) -> list[float | None]:
    return [None if v != v else round(v, 5) for v in values.tolist()]
