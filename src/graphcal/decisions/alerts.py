"""Precision and recall of the rows with the highest scores, from the labels of a few rows.

Rows are ranked by a score that was fixed without the labels used here. The randomness is which rows were labelled; scores and
true labels are fixed. Above the cut that leaves the N highest unlabelled rows, K rows of the pool lie, k labelled, e positive.

Random labels.  e ~ Hypergeometric(K, E, k), so E has an exact interval and
    precision = (E - e) / (K - k)                   of the unlabelled rows above the cut.
The labelled positives are a random draw of all T positives, so with e_a of e above the cut, e_a ~ Hypergeometric(T, E_a, e) and
    recall = (E_a - e_a) / (T - e)                  for every T in an interval at a tenth of the risk; the ends are the widest.

Equal chances in groups.  Rows with the same inclusion probability π are a random draw of their group: an interval per group at a
share of the risk, added. "Reviewed if score > t, plus 2 % at random" is such a design. Other known π >= 0.05, independent draws:
the weighted bounds of `bounds`, and the exact interval from labels thinned to equal chances (each kept with min π / π_i), at half
of the risk each; the narrower end counts.

Closing.  Rows are closed from the lowest score up. "More than a share β of the positives is closed" is tested for growing sets,
in this fixed order, until the first test fails (fixed-sequence testing, arXiv:2110.01052). Precision is promised in the same way
from the highest score down.

Estimates.  Mean calibrated probability of the unlabelled rows above the cut, plus the mean of y - p of the labelled rows above it
(weighted by 1/π, shrunk where they are few), clipped into the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphcal.decisions.bounds import (
    LEAST_INCLUSION,
    MOST_GROUPS,
    Array,
    fewest_errors,
    fewest_weighted,
    labels_for_power,
    labels_needed,
    most_errors,
    most_weighted,
    realised_certified,
)

SHRINK = 20  # labels at which the correction of an estimate counts half
STEPS = 100  # sets that a walk tests
STARTS = (1.5, 4.0, 12.0)  # of the walk for precision: expected labels, in multiples of the smallest useful number


@dataclass(frozen=True)
class Estimate:
    """An estimate with the ends of its interval; None where the labels cannot carry an interval."""

    value: float
    low: float | None = None
    high: float | None = None

    def text(self) -> str:
        """As percentages: "58 % (51 to 65)"."""
        value = percent(self.value)
        if self.low is None or self.high is None:
            return f"{value} %"
        return f"{value} % ({percent(self.low)} to {percent(self.high)})"

    def count_text(self) -> str:
        """As a number of rows: "420 (380 to 465)", short enough for a table."""
        if self.low is None or self.high is None:
            return thousands(self.value)
        return f"{thousands(self.value)} ({thousands(self.low)} to {thousands(self.high)})"


def thousands(count: float) -> str:
    """A count in at most six characters.

    >>> thousands(9876.2), thousands(45678), thousands(3.21e6)
    ('9,876', '45.7k', '3.21M')
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= max(unit, 9999.5):
            return f"{count / unit:.3g}{name}" if count < 999.5 * unit else f"{count / unit:.0f}{name}"
    return f"{count:,.0f}"


def percent(share: float) -> str:
    """A share in percent, with a digit more where it is small."""
    digits = 0 if share == 0 or share >= 0.095 else 1 if share >= 0.001 else 2
    return f"{100 * share:.{digits}f}"


@dataclass(frozen=True)
class AlertThreshold:
    """The N highest unlabelled rows: precision, share of the positives found, positives missed, cost."""

    threshold: float  # calibrated probability of the last row
    rows: int
    precision: Estimate
    recall: Estimate
    missed: float  # expected positives among the other unlabelled rows
    cost: float | None = None
    marks: tuple[str, ...] = ()  # why the row is shown: capacity, lowest cost, precision 50 %


@dataclass(frozen=True)
class Closing:
    """The largest set of rows with the lowest scores that loses at most a share of the positives."""

    max_missed: float
    certainty: float
    rows: int  # 0 where nothing can be closed
    missed: float  # expected positives among them
    positives_needed: int  # labelled ones, without which nothing can be closed
    labels_missing: int  # random labels that would bring them, about


@dataclass(frozen=True)
class PrecisionPromise:
    """The largest number of rows with a promised precision; 0 rows where the labels do not show it."""

    precision: float
    certainty: float
    rows: int
    labels_missing: int  # random labels that would show it; 0 where it is kept, or where too few rows are that precise
    among: int  # highest rows to draw them from


class LabelSample:
    """A pool of ranked rows with labels of some, and the sets of its N highest unlabelled rows.

    Parameters
    ----------
    score : (N,)
        Ranking, fixed without the labels of this sample.
    prob : (N,)
        Calibrated probability of the positive class.
    labelled, positive : (N,) bool
        Which rows were drawn, and their labels; ``positive`` is read at ``labelled`` only.
    inclusion : (N,), optional
        Known probability with which each row was drawn. None for a simple random sample.
    """

    def __init__(
        self,
        score: Array,
        prob: Array,
        labelled: Array,
        positive: Array,
        inclusion: Array | None = None,
        certainty: float = 0.95,
        seed: int = 0,
    ) -> None:
        labelled, score = np.asarray(labelled, dtype=bool), np.asarray(score, dtype=np.float64)
        inside = np.ones(len(score), bool)
        if inclusion is not None and labelled[np.asarray(inclusion) >= 1].all():
            inside = np.asarray(inclusion) < 1  # rows that are all labelled tell nothing about the others
        rows = np.flatnonzero(inside)
        ties, self.coin = np.random.default_rng(seed).random((2, len(rows)))  # no label decides between equal scores
        self.order = rows[np.lexsort((ties, -score[rows]))]
        self.certainty = certainty
        self.prob = np.asarray(prob, dtype=np.float64)[self.order]
        self.labelled = labelled[self.order]
        self.positive = np.zeros(len(self.order), bool)
        self.positive[self.labelled] = np.asarray(positive, dtype=bool)[self.order][self.labelled]
        self.inclusion = None if inclusion is None else np.asarray(inclusion, dtype=np.float64)[self.order]
        self.unlabelled_at = np.flatnonzero(~self.labelled)
        values = np.zeros(1) if self.inclusion is None else np.unique(np.round(self.inclusion, 9))
        self.grouped = len(values) <= MOST_GROUPS  # simple random draws within groups
        self.group = (
            np.zeros(len(self.order), np.int64)
            if self.inclusion is None or not self.grouped
            else np.searchsorted(values, np.round(self.inclusion, 9))
        )
        self.num_groups = len(values) if self.grouped else 1
        weight = np.ones(len(self.order)) if self.inclusion is None else 1 / self.inclusion
        self._sum_labelled = _sums(self.labelled)
        self._sum_prob = _sums(np.where(self.labelled, 0.0, self.prob))
        self._sum_weight = _sums(np.where(self.labelled, weight, 0.0))
        self._sum_residual = _sums(np.where(self.labelled, weight * (self.positive - self.prob), 0.0))

    @property
    def num_unlabelled(self) -> int:
        return len(self.unlabelled_at)

    def ends(self, rows: Sequence[int] | Array) -> Array:
        """Length of the ranked pool that holds the first ``rows`` unlabelled ones."""
        rows = np.asarray(rows, dtype=np.int64)
        return np.where(rows > 0, self.unlabelled_at[np.maximum(rows, 1) - 1] + 1, 0)

    # Estimates

    def expected(self, start: Array, end: Array, corrected: bool = True) -> Array:
        """Expected positives among the unlabelled rows between two positions.

        Probabilities, ``corrected`` by the mean of y - p of the k labelled rows there, which counts k / (k + 20).
        """
        rows = (end - start) - (self._sum_labelled[end] - self._sum_labelled[start])
        weight = self._sum_weight[end] - self._sum_weight[start]
        k = self._sum_labelled[end] - self._sum_labelled[start]
        residual = (self._sum_residual[end] - self._sum_residual[start]) / np.maximum(weight, 1e-12)
        correction = np.where(weight > 0, residual * k / (k + SHRINK), 0.0) * corrected
        total = self._sum_prob[end] - self._sum_prob[start] + rows * correction
        return np.asarray(np.clip(total, 0, rows))

    # Intervals of numbers of positives among unlabelled rows

    def positives_between(self, start: Array, end: Array, risk: float) -> tuple[Array, Array] | None:
        """Interval (T,), (T,) at level 1 - ``risk``; None where an inclusion probability is too small to carry it."""
        if self.grouped:
            return self._by_group(start, end, risk)
        return self._weighted(start, end, risk)

    def _by_group(self, start: Array, end: Array, risk: float) -> tuple[Array, Array]:
        low, high = np.zeros(len(end)), np.zeros(len(end))
        for h in range(self.num_groups):
            inside = self.group == h
            K, k, e = (
                (sums[end] - sums[start]).astype(np.int64)
                for sums in map(_sums, (inside, inside & self.labelled, inside & self.positive))
            )
            level = risk / self.num_groups / 2
            high += most_errors(e, K, k, level) - e
            low += fewest_errors(e, K, k, level) - e
        return low, high

    def _weighted(self, start: Array, end: Array, risk: float) -> tuple[Array, Array] | None:
        """Two intervals at half of the risk: by all labelled positives, weighted, and by labels thinned to equal chances."""
        assert self.inclusion is not None
        low, high = np.zeros(len(end)), np.zeros(len(end))
        for j, (a, b) in enumerate(zip(start, end)):
            pi, hits = self.inclusion[a:b], self.positive[a:b]
            if not len(pi):
                continue
            if pi.min() < LEAST_INCLUSION:
                return None
            kept = self.labelled[a:b] & (self.coin[a:b] < pi.min() / pi)
            e, K, k = (np.array([int(n)]) for n in ((hits & kept).sum(), len(pi), kept.sum()))
            given = (pi[hits], float(pi.min()), len(pi), risk / 4, float(pi.mean()))
            most, seen = int((~self.labelled[a:b]).sum()), int(hits.sum())
            high[j] = np.clip(min(most_weighted(*given), int(most_errors(e, K, k, risk / 4)[0])) - seen, 0, most)
            low[j] = np.clip(max(fewest_weighted(*given), int(fewest_errors(e, K, k, risk / 4)[0])) - seen, 0, most)
        return low, high

    # Precision and recall

    def thresholds(
        self,
        rows: Sequence[int],
        intervals: bool = True,
        cost_alert: float | None = None,
        cost_miss: float | None = None,
    ) -> list[AlertThreshold]:
        """Precision, recall, missed positives and cost of the N highest unlabelled rows, for each N in ``rows``."""
        count, end = np.asarray(rows, dtype=np.int64), self.ends(rows)
        zero, last = np.zeros_like(end), np.full_like(end, len(self.prob))
        above, left = self.expected(zero, end, intervals), self.expected(end, last, intervals)
        risk = 1 - self.certainty
        among = self.positives_between(zero, end, risk) if intervals else None
        share = self.recall_interval(end, risk) if intervals else None
        table = []
        for j, n in enumerate(count):
            precision, total = float(above[j] / max(n, 1)), float(above[j] + left[j])
            recall = float(above[j] / total) if total > 0 else 0.0
            p = _clipped(precision, None if among is None else (among[0][j] / max(n, 1), among[1][j] / max(n, 1)))
            r = _clipped(recall, None if share is None else (share[0][j], share[1][j]))
            missed = total * (1 - r.value)
            cost = None if cost_alert is None or cost_miss is None else float(cost_alert * n + cost_miss * missed)
            table.append(AlertThreshold(float(self.prob[end[j] - 1]), int(n), p, r, missed, cost))
        return table

    def recall_interval(self, end: Array, risk: float) -> tuple[Array, Array] | None:
        """Interval of the share of unlabelled positives above each position."""
        zero, last = np.zeros_like(end), np.full_like(end, len(self.prob))
        if self.num_groups == 1 and self.grouped:
            e, above = int(self.positive.sum()), _sums(self.positive)[end].astype(np.int64)
            if e == 0:
                return np.zeros(len(end)), np.ones(len(end))
            low, high = np.ones(len(end)), np.zeros(len(end))
            for total in self._totals(risk / 10):
                most = most_errors(above, np.full_like(end, total), np.full_like(end, e), 0.45 * risk)
                fewest = fewest_errors(above, np.full_like(end, total), np.full_like(end, e), 0.45 * risk)
                low = np.minimum(low, (fewest - above) / (total - e))
                high = np.maximum(high, (most - above) / (total - e))
            return low, high
        sent, left = self.positives_between(zero, end, risk / 2), self.positives_between(end, last, risk / 2)
        if sent is None or left is None:
            return None
        low = sent[0] / np.maximum(sent[0] + left[1], 1e-12)
        high = np.where(sent[1] + left[0] > 0, sent[1] / np.maximum(sent[1] + left[0], 1e-12), 1.0)
        return low, high

    def _totals(self, risk: float) -> list[int]:
        """Plausible numbers T of positives of the pool, labelled ones included: the least, a middle one and a large one."""
        K, k, e = len(self.prob), int(self.labelled.sum()), int(self.positive.sum())
        fewest = int(fewest_errors(np.array([e]), np.array([K]), np.array([k]), risk)[0])
        middle = round(e * K / max(k, 1))
        return sorted({max(fewest, e + 1), max(middle, e + 1), max(K, e + 1)})

    # Promises

    def promised_precision(self, precision: float) -> PrecisionPromise:
        """The largest number of highest rows of which at least a share ``precision`` is positive, by a walk at fixed starts."""
        risk = (1 - self.certainty) / len(STARTS)
        needed = math.ceil(math.log(risk) / math.log(precision))  # labels above the cut, all positive
        rate = self.labelled.sum() / max(len(self.prob), 1)
        best = 0
        for factor in STARTS if rate > 0 else ():
            first = round(factor * needed / rate * (1 - rate))
            if first >= self.num_unlabelled:
                break
            rows = np.unique(np.linspace(max(first, 1), self.num_unlabelled, STEPS).astype(np.int64))
            best = max(best, walk(rows, lambda some: self._is_precise(some, precision, risk)))
        missing, among = (0, 0) if best else self._labels_missing(precision, risk)
        return PrecisionPromise(precision, self.certainty, best, missing, among)

    def _is_precise(self, rows: Array, precision: float, risk: float) -> Array:
        """(T,) bool: at least a share of the N highest unlabelled rows is positive, each N tested alone."""
        end = self.ends(rows)
        among = self.positives_between(np.zeros_like(end), end, 2 * risk)
        return np.zeros(len(rows), bool) if among is None else np.asarray(among[0] >= precision * rows - 1e-9)

    def _labels_missing(self, precision: float, risk: float) -> tuple[int, int]:
        """Labels that would show the precision, and the highest unlabelled rows to draw them from; 0, 0 where there are too few.

        They are drawn from the rows that are expected to be clearly better: half as wrong, or 1.5 times as precise.
        """
        better = min(1.5 * precision, (1 + precision) / 2)
        rows = np.arange(1, self.num_unlabelled + 1)
        reached = np.flatnonzero(self._sum_prob[self.ends(rows)] >= better * rows)
        among = int(reached[-1]) + 1 if len(reached) else 0
        there = int(self.ends([among])[0]) - among
        needed = labels_for_power(1 - precision, 1 - risk, (1 - better) / (1 - precision))
        return (needed - there, among) if 0 < needed - there < among else (0, 0)

    def closing(self, max_missed: float, promise: bool = True) -> Closing:
        """The largest set of lowest rows with at most a share ``max_missed`` of the unlabelled positives, by a walk upwards."""
        risk, e = 1 - self.certainty, int(self.positive.sum())
        needed = labels_needed(max_missed, self.certainty)
        rate = float(self.positive.sum() / max(self.labelled.sum(), 1))
        missing = 0 if e >= needed else math.ceil((needed - e) / max(rate, 0.5 / max(int(self.labelled.sum()), 1)))
        rows = 0
        if promise and self.num_unlabelled and e:
            sizes = np.unique(np.linspace(1, self.num_unlabelled, STEPS).astype(np.int64))
            rows = walk(sizes, lambda some: self._few_missed(self.ends(self.num_unlabelled - some), max_missed, risk))
        end = self.ends([self.num_unlabelled - rows])
        missed = float(self.expected(end, np.full_like(end, len(self.prob)))[0]) if rows else 0.0
        return Closing(max_missed, self.certainty, rows, missed, needed, 0 if rows else missing)

    def _few_missed(self, end: Array, max_missed: float, risk: float) -> Array:
        """(T,) bool: at most a share of the unlabelled positives lies below each position, tested alone."""
        if self.num_groups == 1 and self.grouped:
            e = int(self.positive.sum())
            below = e - _sums(self.positive)[end].astype(np.int64)
            passed = np.ones(len(end), bool)
            for total in self._totals(risk / 10):
                passed &= realised_certified(
                    below, np.full_like(end, total), np.full_like(end, e), max_missed, 0.9 * risk
                )
            return passed
        zero, last = np.zeros_like(end), np.full_like(end, len(self.prob))
        above, left = (
            self.positives_between(zero, end, risk),
            self.positives_between(end, last, risk),
        )  # one side of each
        if above is None or left is None:
            return np.zeros(len(end), bool)
        return np.asarray(left[1] <= max_missed * (left[1] + above[0]))


def _sums(values: Array) -> Array:
    """(N + 1,) sums of the first 0, 1, ..., N values."""
    return np.concatenate([[0], np.cumsum(values)])


def walk(sizes: Array, passes: Callable[[Array], Array], chunk: int = 8) -> int:
    """The last of growing sizes that passes in an unbroken row from the first on; 0 when the first one fails."""
    last = 0
    for start in range(0, len(sizes), chunk):
        some = sizes[start : start + chunk]
        passed = passes(some)
        failures = np.flatnonzero(~passed)
        if len(failures):
            return int(some[failures[0] - 1]) if failures[0] else last
        last = int(some[-1])
    return last


def _clipped(value: float, ends: tuple[float, float] | None) -> Estimate:
    if ends is None:
        return Estimate(value)
    low, high = float(np.clip(ends[0], 0, 1)), float(np.clip(ends[1], 0, 1))
    return Estimate(min(max(value, low), high), low, high)
