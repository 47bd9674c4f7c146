"""Do two means agree? Welch's test for a difference, two one-sided tests for its absence.

    se² = s₁²/n₁ + s₂²/n₂         df = se⁴ / (s₁⁴/(n₁²(n₁-1)) + s₂⁴/(n₂²(n₂-1)))         d = m₁ - m₂

    differs      Welch: |d| / se beyond Student's t with df, two-sided
    equivalent   TOST with margin M: both d > -M and d < M are shown, each one-sided, so the larger of the two p-values counts;
                 the same as: the 1 - 2·level interval of d lies within ±M (Schuirmann 1987)

Both may hold (a small difference, well measured) and neither (too few runs). `verdict` says which: equivalence first.
A bias over many entries: its mean with Student's interval, and how many lie above zero against a fair coin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.05
MARGIN = 1.0  # points: what the field argues about is half a point to one point


@dataclass(frozen=True)
class Sample:
    """Mean, deviation and size of several runs."""

    mean: float
    sd: float
    runs: int


@dataclass(frozen=True)
class MeanDifference:
    """A mean minus another, its standard error and Welch's degrees of freedom."""

    value: float
    error: float
    df: float

    @property
    def p(self) -> float:
        """P-value of a difference as large if there were none."""
        if self.error == 0:
            return 1.0 if self.value == 0 else 0.0
        return float(2 * stats.t.sf(abs(self.value) / self.error, self.df))

    def p_beyond(self, margin: float) -> float:
        """P-value of a difference as small if the true one were at the margin or beyond (larger of two one-sided tests)."""
        if self.error == 0:
            return 0.0 if abs(self.value) < margin else 1.0
        return float(stats.t.sf((margin - abs(self.value)) / self.error, self.df))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        half = self.error * float(stats.t.isf(level / 2, self.df))
        return self.value - half, self.value + half

    def verdict(self, margin: float, level: float = LEVEL) -> str:
        """equivalent (within the margin), differs, or open: neither is shown."""
        if self.p_beyond(margin) < level:
            return "equivalent"
        return "differs" if self.p < level else "open"


def welch(a: Sample, b: Sample) -> MeanDifference:
    """a minus b."""
    va, vb = a.sd**2 / a.runs, b.sd**2 / b.runs
    if va + vb == 0:
        return MeanDifference(a.mean - b.mean, 0.0, float(a.runs + b.runs - 2))
    df = (va + vb) ** 2 / (va**2 / (a.runs - 1) + vb**2 / (b.runs - 1))
    return MeanDifference(a.mean - b.mean, float(np.sqrt(va + vb)), df)


def combine(differences: Sequence[MeanDifference]) -> MeanDifference:
    """The mean of independent differences, say of one graph's rows: errors add in squares, df by Satterthwaite."""
    k, squares = len(differences), np.array([d.error**2 for d in differences])
    total = squares.sum()
    df = total**2 / sum(s**2 / d.df for s, d in zip(squares, differences)) if total else 1.0
    return MeanDifference(float(np.mean([d.value for d in differences])), float(np.sqrt(total)) / k, float(df))


@dataclass(frozen=True)
class Bias:
    """The mean of differences over entries, its interval, and how many are above zero."""

    mean: float
    low: float
    high: float
    above: int
    entries: int
    p_sign: float


def bias(values: Sequence[float], level: float = LEVEL) -> Bias:
    """Student's interval, and the exact two-sided sign test (ties left out)."""
    d = np.asarray(values, dtype=float)
    above, below = int((d > 0).sum()), int((d < 0).sum())
    p = float(stats.binomtest(above, above + below).pvalue) if above + below else 1.0
    if len(d) < 2:
        return Bias(float(d.mean()), -np.inf, np.inf, above, len(d), p)
    half = float(stats.t.isf(level / 2, len(d) - 1)) * d.std(ddof=1) / np.sqrt(len(d))
    return Bias(float(d.mean()), float(d.mean() - half), float(d.mean() + half), above, len(d), p)
