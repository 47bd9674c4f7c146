"""Cut predictions into calendar windows, and estimate positives, precision and recall of each without labels.

A queue with labels has estimates of its precision P, its recall R and its number of positives T, each with an interval. They are
carried to a window by the calibrated probabilities p: with m the mean of p over rows that are sent and S the sum over all rows,

    positives T · S_window / S        precision P · m_window / m        recall R · (sent share of S)_window / (sent share of S)

The ends of the intervals are scaled in the same way; binomial quantiles add the chance of a small window. `graphcal alerts` does
this for the windows of its table, `graphcal watch` for later rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import bdtrik

from graphcal.decisions.alerts import Estimate
from graphcal.decisions.bounds import Array

WINDOWS = ("auto", "day", "week", "month")
NUMBERS = ("threshold", "mean", "sent_share", "total", "certainty")
MOST_VALUES = 12  # of a column of numbers that are windows each


def cut_windows(time: Sequence[Any] | Array | None, rows: int, window: str = "auto") -> list[tuple[str, Array]]:
    """Names and row numbers of the windows, oldest first.

    Dates are cut into days, weeks (from Monday on) or months. Numbers are cut by value where they are few, else into ten parts
    with about equally many rows; equal times stay together.

    >>> days = np.array(["2026-03-04", "2026-03-09", "2026-03-10"], dtype="datetime64[D]")
    >>> [(name, rows.tolist()) for name, rows in cut_windows(days, 3, "week")]
    [('2026-03-02', [0]), ('2026-03-09', [1, 2])]
    """
    if window not in WINDOWS:
        raise ValueError(f"window must be one of {', '.join(WINDOWS)}; got {window!r}.")
    if time is None:
        return [("all", np.arange(rows))]
    values = np.asarray(time)
    if len(values) != rows:
        raise ValueError(f"time has {len(values)} entries for {rows} predictions")
    if values.dtype.kind not in "iufM" or (values.dtype.kind in "fM" and (values != values).any()):
        raise ValueError(
            f"time must hold numbers or datetime64 without gaps, got {values.dtype}: text does not sort as time does. "
            "graphcal watch reads columns of text"
        )
    starts, at = np.unique(values if values.dtype.kind != "M" else _calendar(values, window), return_inverse=True)
    names = [str(start) for start in starts]
    if values.dtype.kind != "M" and len(starts) > MOST_VALUES:
        first = np.unique(np.searchsorted(starts, np.sort(values)[(np.arange(10) * rows) // 10]))
        last = np.append(first[1:], len(starts)) - 1
        names = [f"{_number(starts[a])} to {_number(starts[b])}" for a, b in zip(first, last)]
        at = np.searchsorted(first, at, side="right") - 1
    parts = np.split(np.argsort(at, kind="stable"), np.cumsum(np.bincount(at))[:-1])
    return list(zip(names, parts))


def _calendar(times: Array, window: str) -> Array:
    """First day of the window of each time; months as datetime64[M]."""
    days = times.astype("datetime64[D]")
    if window == "auto":
        span = int((days.max() - days.min()).astype(int)) + 1
        window = "day" if span <= 14 else "week" if span <= 100 else "month"
    if window == "month":
        return days.astype("datetime64[M]")
    return days - (days.astype(np.int64) + 3) % 7 if window == "week" else days


def _number(value: Any) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.5g}"


@dataclass(frozen=True)
class WindowEstimate:
    """Rows of a window of time: expected positives, precision and recall at the threshold."""

    name: str
    rows: int
    sent: int  # rows above the threshold
    expected: Estimate  # number of positives
    precision: Estimate | None  # None where no row is sent
    recall: Estimate | None
    drift: str = ""  # how its scores differ from those of the fitting period


@dataclass(frozen=True)
class QueueEstimate:
    """Estimates of a whole queue, which `window` carries to a part of it or to later rows."""

    positive: str  # name of the class
    threshold: float  # calibrated probability of the last row that is sent
    precision: Estimate
    recall: Estimate
    expected: Estimate  # number of positives
    mean: float  # probability of rows that are sent
    sent_share: float  # of the sum of all probabilities
    total: float  # sum of all probabilities
    certainty: float

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> QueueEstimate:
        """Read what `dataclasses.asdict` wrote."""
        try:
            shares = {name: Estimate(**entry[name]) for name in ("precision", "recall", "expected")}
            numbers = {name: float(entry[name]) for name in NUMBERS}
            ends = [v for one in shares.values() for v in asdict(one).values() if v is not None]
            if not all(math.isfinite(v) and v >= 0 for v in (*ends, *numbers.values())):
                raise ValueError
            fields: dict[str, Any] = {"positive": str(entry["positive"]), **shares, **numbers}
            return cls(**fields)
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                "The estimates of alerts in the calibrator are damaged. Run graphcal alerts again."
            ) from None

    def sends(self, prob: Array) -> Array:
        """(n,) bool: probabilities at or above the threshold; single precision counts as equal."""
        return np.asarray(prob >= self.threshold * (1 - 1e-6))

    def window(self, name: str, prob: Array, sent: Array | None = None, drift: str = "") -> WindowEstimate:
        """Estimate positives, precision and recall of rows with calibrated probabilities (n,)."""
        sent = self.sends(prob) if sent is None else sent
        m, n, mass = int(sent.sum()), len(prob), float(prob.sum())
        rate = self._carried(self.expected, mass / max(self.total, 1e-12) / max(n, 1), n)
        expected = Estimate(*(None if v is None else v * n for v in asdict(rate).values()))  # type: ignore[arg-type]
        if m == 0:
            return WindowEstimate(name, n, 0, expected, None, None, drift)
        precision = self._carried(self.precision, float(prob[sent].mean()) / max(self.mean, 1e-12), m)
        share = float(prob[sent].sum()) / max(mass, 1e-12)
        recall = self._carried(self.recall, share / max(self.sent_share, 1e-12), max(1, round(expected.value)))
        return WindowEstimate(name, n, m, expected, precision, recall, drift)

    def _carried(self, share: Estimate, factor: float, count: int) -> Estimate:
        """A share scaled by ``factor``, its interval widened by the chance of ``count`` draws."""
        risk, value = 1 - self.certainty, min(share.value * factor, 1.0)
        if share.low is None or share.high is None or count == 0:
            return Estimate(value)
        low = max(0, math.floor(_quantile(risk / 2, count, min(share.low * factor, 1.0)))) / count
        high = min(count, math.ceil(_quantile(1 - risk / 2, count, min(share.high * factor, 1.0)))) / count
        return Estimate(value, min(low, value), max(high, value))


def _quantile(level: float, n: int, p: float) -> float:
    """Quantile of a binomial distribution, between whole numbers."""
    if p <= 0 or p >= 1:
        return n * p
    value = float(bdtrik(level, n, p))
    return 0.0 if math.isnan(value) else value
