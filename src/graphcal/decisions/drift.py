"""Have predictions changed since the calibrator was fitted? Counts now against counts then.

Two questions per pair of counts: is there a difference at all (χ² test of two samples), and is it large enough to care (the
population stability index Σ (a - b) ln(a / b) over shares, 0.1 by custom)? Drift is both: with many nodes everything is
significant, with few nodes every index is large.

With labels: the calibration slope, b in  P(right) = σ(a + b logit(conf)), 1 for honest confidences, below 1 for boastful ones;
by maximum likelihood with Wald's interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2_contingency, norm

from graphcal.decisions.bounds import Array
from graphcal.decisions.decision import Interval

NOTABLE = 0.1  # population stability index


@dataclass(frozen=True)
class Change:
    """One distribution, now against then."""

    what: str
    index: float
    p: float

    def is_drift(self, level: float) -> bool:
        return self.index >= NOTABLE and self.p <= level


def stability_index(now: Sequence[int], then: Sequence[int]) -> float:
    """Σ (a - b) ln(a / b) of the shares, half a node added to each cell that either has."""
    a, b = np.asarray(now, float), np.asarray(then, float)
    used = (a + b) > 0
    a, b = a[used] + 0.5, b[used] + 0.5
    a, b = a / a.sum(), b / b.sum()
    return float(((a - b) * np.log(a / b)).sum())


def compare_counts(what: str, now: Sequence[int], then: Sequence[int]) -> Change:
    """Index and p-value; cells with fewer than five nodes expected are joined."""
    table = np.array([now, then], float)
    order = np.argsort(table.sum(axis=0))
    table = table[:, order]
    expected = table.sum(axis=0) * table.sum(axis=1).min() / table.sum()
    few = np.flatnonzero(np.cumsum(expected) < 5)
    first = int(few[-1]) + 2 if len(few) else 1
    joined = np.column_stack([table[:, :first].sum(axis=1), table[:, first:]])
    p = 1.0 if joined.shape[1] < 2 else float(chi2_contingency(joined, correction=False).pvalue)
    return Change(what, stability_index(now, then), p)


def calibration_slope(conf: Array, right: Array, certainty: float = 0.95, steps: int = 50) -> Interval | None:
    """b with its interval; None where all are right or all wrong, or confidence does not vary."""
    x = np.clip(conf.astype(float), 1e-6, 1 - 1e-6)
    x = np.log(x / (1 - x))
    if right.all() or not right.any() or np.ptp(x) < 1e-9:
        return None
    design, beta = np.column_stack([np.ones(len(x)), x]), np.array([0.0, 1.0])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-np.clip(design @ beta, -30, 30)))
        weight = np.maximum(p * (1 - p), 1e-9)
        hessian = design.T @ (design * weight[:, None]) + 1e-9 * np.eye(2)
        step = np.linalg.solve(hessian, design.T @ (right - p))
        beta = beta + step / max(1.0, float(np.abs(step).max()))  # at most one unit at a time
        if np.abs(step).max() < 1e-9:
            break
    width = float(norm.ppf((1 + certainty) / 2) * np.sqrt(np.linalg.inv(hessian)[1, 1]))
    return Interval(float(beta[1]), float(beta[1]) - width, float(beta[1]) + width)
