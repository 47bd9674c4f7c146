"""Compare two groups of rows: were the labelled rows drawn at random from all of them, and do new rows look like the old ones?

A ridge regression on covariates that need no label (probabilities and the histogram of confidence, degree, time) learns to tell
the groups apart on one half of the rows and is judged on the other half, both ways:

    AUC    probability that a labelled row gets a higher score than another one; 0.5 when the groups are alike
    p      share of random re-assignments of the group, under the stated design, that reach this AUC (Besag & Clifford 1991,
           sequential: it stops early when the AUC is ordinary)

The p-value is exact for any number of rows, any covariates and any graph. The design is a simple random draw, a random draw
within ``strata``, or independent draws with known ``inclusion`` probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphcal.text import class_title

Array = NDArray[Any]
LEVEL = 0.003  # rows differ "beyond chance": three false alarms in 1,000 random draws
DRAWS = 999  # re-assignments at most
ENOUGH = 10  # that reach the AUC: then it is ordinary, and the p-value is their share
MOST = (2000, 4000)  # labelled and other rows that are looked at
FEWEST = 20  # rows of each group; below nothing can be told
MOST_CLASSES = 10  # whose probabilities are compared, the most frequent ones
RIDGE = 10.0


@dataclass(frozen=True)
class RowComparison:
    """Comparison of two groups of rows: how well a classifier separates them, and by which covariate most."""

    auc: float
    p: float
    covariate: str  # with the largest standardized difference
    labelled: float  # its mean in the first group; the median of times, in seconds where they are dates
    others: float
    dates: bool = False  # the covariate holds dates

    @property
    def differ(self) -> bool:
        """Return whether the groups differ beyond chance."""
        return self.p <= LEVEL

    def text(self, first: str = "the labelled rows", second: str = "the others") -> str:
        """The largest difference as a phrase."""
        if math.isnan(self.labelled) or math.isnan(self.others):
            return f"{self.covariate} is missing in {first if math.isnan(self.labelled) else second}"
        if self.dates:
            days = [str(np.datetime64(round(value), "s"))[:10] for value in (self.labelled, self.others)]
            return f"{self.covariate} lies around {days[0]} in {first} and around {days[1]} in {second}"
        values = [f"{value:.2g}" if abs(value) < 10 else f"{value:,.0f}" for value in (self.labelled, self.others)]
        if values[0] == values[1]:
            return f"{self.covariate} is spread differently in {first} and {second}"
        return f"mean {self.covariate} is {values[0]} in {first} and {values[1]} in {second}"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "differ": self.differ}


def prediction_covariates(
    log_probs: Any, names: Sequence[str] | None = None, degree: Any = None, time: Any = None
) -> dict[str, Array]:
    """Covariates (n,) by name of rows with log-probabilities (n, C).

    Confidence, probabilities of the most frequent classes, and degree and time where given.
    """
    probs = np.exp(np.asarray(log_probs, dtype=np.float64))
    classes = most_frequent(probs.mean(axis=0))
    covariates = dict(zip(probability_names(classes, names), sample_values(probs, classes).T))
    if degree is not None:
        covariates["degree"] = np.asarray(degree, dtype=np.float64)
    if time is not None:
        covariates["time"] = np.asarray(time)
    return covariates


def most_frequent(prior: Array) -> list[int]:
    """The classes whose probabilities are compared: class 1 of two, else the ten most frequent ones."""
    return [1] if len(prior) == 2 else sorted(np.argsort(-prior, kind="stable")[:MOST_CLASSES].tolist())


def sample_values(probs: Array, classes: Sequence[int]) -> Array:
    """Confidence and the probabilities of ``classes`` (n, 1 + k) of rows with probabilities (n, C)."""
    return np.column_stack([probs.max(axis=1), probs[:, list(classes)]])


def probability_names(classes: Sequence[int], names: Sequence[str] | None = None) -> list[str]:
    """Names of the columns of `sample_values`."""
    titles = [str(k) if names is None else str(names[k]) for k in classes]
    return ["confidence", *(f"probability of {class_title(t)}" for t in titles)]


def compare_rows(
    labelled: Mapping[str, Any],
    others: Mapping[str, Any],
    strata: tuple[Array, Array] | None = None,
    inclusion: tuple[Array, Array] | None = None,
    most: tuple[int, int] = MOST,
    draws: int = DRAWS,
    seed: int = 0,
) -> RowComparison:
    """Compare rows by their covariates (name -> (n,)); ``strata`` and ``inclusion`` hold the values of both groups.

    At most ``most`` rows of the groups are looked at, and at most ``draws`` re-assignments made.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.beta(1, 9, 3000)
    >>> alike = compare_rows({"probability": p[:300]}, {"probability": p[300:]})
    >>> picked = rng.random(3000) < p
    >>> other = compare_rows({"probability": p[picked]}, {"probability": p[~picked]})
    >>> alike.differ, other.differ, other.p, other.covariate
    (False, True, 0.001, 'probability')
    """
    rng = np.random.default_rng(seed)
    sizes = tuple(len(next(iter(rows.values()))) for rows in (labelled, others))
    picked = [rng.permutation(n)[:limit] for n, limit in zip(sizes, most)]
    group = np.repeat([True, False], [len(rows) for rows in picked])
    values = {name: np.concatenate([labelled[name][picked[0]], others[name][picked[1]]]) for name in labelled}
    dates = {name for name, column in values.items() if np.issubdtype(column.dtype, np.datetime64)}
    numbers = {name: _numbers(column) for name, column in values.items()}
    blocks = _both(strata, picked) if strata is not None else np.zeros(len(group), np.int64)
    weight, chance = np.ones(len(group)), None
    if inclusion is not None:  # chance: of being labelled, among the rows that are looked at
        pi, looked = _both(inclusion, picked), [len(rows) / max(n, 1) for rows, n in zip(picked, sizes)]
        weight, chance = 1 / pi, pi * looked[0] / (pi * looked[0] + (1 - pi) * looked[1])
    name, means = _largest_difference(numbers, group, blocks, weight)
    if min(group.sum(), (~group).sum()) < FEWEST:
        return RowComparison(0.5, 1.0, name, *means, name in dates)
    test = _CrossFit(_design(numbers, blocks), rng.random(len(group)) < 0.5)
    auc = float(test.auc(group[:, None])[0])
    reached, p = 0, None
    for start in range(0, draws, 37):
        count = min(37, draws - start)
        again = test.auc(_reassigned(group, blocks, chance, count, rng))
        hits = reached + np.cumsum(again >= auc - 1e-12)
        if hits[-1] >= ENOUGH:
            p = ENOUGH / (start + 1 + int(np.searchsorted(hits, ENOUGH)))
            break
        reached = int(hits[-1])
    return RowComparison(auc, (1 + reached) / (draws + 1) if p is None else p, name, *means, name in dates)


def _both(pair: tuple[Array, Array], picked: Sequence[Array]) -> Array:
    return np.concatenate([np.asarray(part)[rows] for part, rows in zip(pair, picked)])


def _numbers(column: Array) -> Array:
    if np.issubdtype(column.dtype, np.datetime64):
        column = np.where(np.isnat(column), np.nan, column.astype("datetime64[s]").astype(np.float64))
    return column.astype(np.float64)


def _largest_difference(
    columns: Mapping[str, Array], group: Array, blocks: Array, weight: Array
) -> tuple[str, tuple[float, float]]:
    """Name of the covariate with the largest standardized difference of means within blocks, and its two means."""
    best, gap = next(iter(columns)), -1.0
    for name, column in columns.items():
        centred = np.log1p(column) if name == "degree" else column
        centred = np.nan_to_num(centred, nan=float(np.nanmean(centred)) if np.isfinite(centred).any() else 0.0)
        for block in np.unique(blocks):
            inside = blocks == block
            centred = np.where(inside, centred - np.average(centred[inside], weights=weight[inside]), centred)
        difference = abs(np.average(centred[group], weights=weight[group]) - centred[~group].mean())
        size = difference / max(float(centred.std()), 1e-12)
        if size > gap:
            best, gap = name, size
    middle = np.median if best == "time" else np.mean
    parts = [columns[best][rows & ~np.isnan(columns[best])] for rows in (group, ~group)]
    first, second = (float(middle(part)) if len(part) else float("nan") for part in parts)
    return best, (first, second)


def _design(columns: Mapping[str, Array], blocks: Array) -> Array:
    """(n, d) standardized covariates: values and quantile bins of each, centred within blocks."""
    parts: list[Array] = []
    for name, column in columns.items():
        missing = np.isnan(column)
        filled = np.where(missing, np.nanmedian(column) if (~missing).any() else 0.0, column)
        if name.startswith("probability") or name == "confidence":
            filled = np.log((filled + 0.01) / (1.01 - filled))
        elif name == "degree":
            filled = np.log1p(filled)
        parts.append(filled)
        if missing.any():
            parts.append(missing.astype(float))
        if not name.startswith("probability") or len(columns) <= 3:
            edges = np.unique(np.quantile(filled, np.linspace(0.1, 0.9, 9)))
            parts += [(np.searchsorted(edges, filled, side="left") == k).astype(float) for k in range(len(edges) + 1)]
    design = np.column_stack(parts)
    for block in np.unique(blocks):
        design[blocks == block] -= design[blocks == block].mean(axis=0)
    spread = design.std(axis=0)
    return np.asarray(design[:, spread > 1e-9] / spread[spread > 1e-9])


class _CrossFit:
    """Ridge regression of the group on one half, AUC on the other, both ways; for many assignments of the group at once."""

    def __init__(self, design: Array, first: Array) -> None:
        self.halves = [(design[first], design[~first], first), (design[~first], design[first], ~first)]

    def auc(self, groups: Array) -> Array:  # (n, B) bool -> (B,)

        total = np.zeros(groups.shape[1])
        for here, there, rows in self.halves:
            target = groups[rows].astype(float)
            gram = here.T @ here + RIDGE * np.eye(here.shape[1])
            scores = there @ np.linalg.solve(gram, here.T @ (target - target.mean(axis=0)))
            member = groups[~rows]
            ranks = column_ranks(np.round(scores, 9))
            n1, n0 = member.sum(axis=0), (~member).sum(axis=0)
            above = (ranks * member).sum(axis=0) - n1 * (n1 + 1) / 2
            total += np.where(n1 * n0 > 0, above / np.maximum(n1 * n0, 1), 0.5) / 2
        return total


def column_ranks(values: Array) -> Array:
    """Ranks 1..n within each column (n, B), the mean rank for equal values."""
    rows = np.ascontiguousarray(values.T)
    order = np.argsort(rows, axis=1)
    ordered, n = np.take_along_axis(rows, order, axis=1), rows.shape[1]
    starts = np.ones(rows.shape, bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.flatnonzero(starts)  # of each run of equal values, counted through all columns
    length = np.diff(first, append=rows.size)
    ranks = np.empty(rows.shape)
    np.put_along_axis(ranks, order, np.repeat(first % n + (length + 1) / 2, length).reshape(rows.shape), axis=1)
    return np.asarray(ranks.T)


def _reassigned(group: Array, blocks: Array, chance: Array | None, count: int, rng: np.random.Generator) -> Array:
    """(n, B) groups as the design could have drawn them: permuted within blocks, or drawn with their probabilities."""
    if chance is not None:
        return rng.random((len(group), count)) < chance[:, None]
    drawn = np.repeat(group[:, None], count, axis=1)
    for block in np.unique(blocks):
        inside = np.flatnonzero(blocks == block)
        drawn[inside] = rng.permuted(drawn[inside], axis=0)
    return drawn
