"""Significance of differences between methods.

A difference over R runs has an error of its own in every run, seen in the scatter of d_r, and one that all runs share:

    Var(mean d) = Var(d_r) / R + shared.

Same test nodes in every run (seeds of one split): shared is the sampling error of the nodes, by resampling (`sampling_errors`).
Other test nodes in each run (several splits): runs share f = n_test / N of their nodes, so shared = (1 - 1/R) f mean(sd_r²) with
sd_r the sampling error of d_r. mean(d) / sqrt(Var) is read against Student's t with Satterthwaite's degrees of freedom: R - 1 for
the scatter, infinitely many for the shared part.
The best of a row is compared with every other method (`best_of`). It is chosen by the same values, so p-values are corrected for
all K (K - 1) / 2 pairs of the row, and not only for the K - 1 that contain it (Holm). With K - 1, one of 13 equal methods differs
from the best in 18 % of the rows.
Over graphs (`over_graphs`): each graph gives one difference, its rows averaged, because rows of one graph share test nodes;
under the null hypothesis its sign is a coin.

*Do two means agree?* Welch's test for a difference, two one-sided tests for its absence.

    se² = s₁²/n₁ + s₂²/n₂         df = se⁴ / (s₁⁴/(n₁²(n₁-1)) + s₂⁴/(n₂²(n₂-1)))         d = m₁ - m₂

    differs      Welch: |d| / se beyond Student's t with df, two-sided
    equivalent   TOST with margin M: both d > -M and d < M are shown, each one-sided, so the larger of the two p-values counts;
                 the same as: the 1 - 2·level interval of d lies within ±M (Schuirmann 1987)

Both may hold (a small difference, well measured) and neither (too few runs). `verdict` says which: equivalence first.
A bias over many entries: its mean with Student's interval, and how many lie above zero against a fair coin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np
import torch
from scipy import stats

from graphcal.lab.bench.records import Record, Store
from graphcal.metrics.comparison import holm, sampling_errors
from graphcal.metrics.floor import ROUNDING, seeded
from graphcal.metrics.names import metric_of

LEVEL = 0.05
DRAWS = 200  # enough for the standard error of one run among several
DRAWS_TOGETHER = 1000  # of all runs together


@dataclass(frozen=True)
class Difference:
    """Metric of a method minus that of another, and the chance of one as large if they were equal."""

    value: float
    p: float

    @property
    def real(self) -> bool:
        return self.p <= LEVEL


def measured(keys: Mapping[str, Sequence[str]], store: Store, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Metric of K methods in R runs (K, R), and the covariance (K, K) of the error that all runs share."""
    nodes = [[store.nodes(key) for key in of] for of in keys.values()]  # method -> run -> log-probabilities, labels
    labels = [y for _, y in nodes[0]]
    record = store.record(next(iter(keys.values()))[0])
    bins, R = int(record.spec["bins"]), len(labels)
    if all(torch.equal(labels[0], y) for y in labels[1:]):
        methods = [[log_probs for log_probs, _ in of] for of in nodes]
        values, errors = sampling_errors(methods, labels[0], metric, bins, DRAWS_TOGETHER, seeded(None))
        return values.numpy(), errors.T.cov().numpy()
    each = [
        sampling_errors([[of[r][0]] for of in nodes], y, metric, bins, DRAWS, seeded(None))
        for r, y in enumerate(labels)
    ]
    values, sampled = torch.cat([one for one, _ in each], dim=1), torch.stack([errors.T.cov() for _, errors in each])
    share = record.result["nodes"]["test"] / record.result["nodes"].get("all", record.result["nodes"]["test"])
    return values.numpy(), ((1 - 1 / R) * share * sampled.mean(dim=0)).numpy()


def p_value(differences: np.ndarray, shared: float) -> float:
    """p-value of no mean difference over runs that have an error of variance ``shared`` in common."""
    R, mean = len(differences), abs(float(differences.mean()))
    scatter = float(differences.var(ddof=1)) / R if R > 1 else 0.0
    variance = scatter + max(shared, 0.0)
    if mean <= ROUNDING or variance == 0.0:
        return float(mean <= ROUNDING)
    freedom = (R - 1) * (variance / scatter) ** 2 if scatter > 0 else np.inf
    return float(2 * stats.t.sf(mean / np.sqrt(variance), freedom))


def p_values(values: np.ndarray, shared: np.ndarray, pairs: Sequence[tuple[int, int]]) -> list[float]:
    """p-values of pairs of methods, corrected by Holm for reading them all; `values` (K, R) and `shared` (K, K) of `measured`."""
    variance = np.diag(shared)[:, None] + np.diag(shared) - 2 * shared
    return holm([p_value(values[i] - values[j], float(variance[i, j])) for i, j in pairs])


def over_graphs(differences: Sequence[float]) -> float:
    """p-value of no mean difference over independent graphs: the share of sign changes with a mean as far from zero (exact)."""
    d = np.asarray(differences, dtype=float)
    signs = 1 - 2 * ((np.arange(2 ** len(d))[:, None] >> np.arange(len(d))) & 1)
    means = np.abs(signs @ d)
    return float((means >= means[0] * (1 - 1e-12)).mean())


def value(record: Record, metric: str) -> float:
    return float(record.result["test"][metric])


def _means(keys: Mapping[str, Sequence[str]], store: Store, metric: str) -> dict[str, float]:
    return {m: fmean(value(store.record(k), metric) for k in of) for m, of in keys.items()}


def against(reference: str, keys: Mapping[str, Sequence[str]], store: Store, metric: str) -> dict[str, Difference]:
    """Every method minus the reference, which was named in advance; p-values corrected by Holm for reading them all."""
    names, means = list(keys), _means(keys, store, metric)
    others = [m for m in names if m != reference]
    p = p_values(*measured(keys, store, metric), [(names.index(m), names.index(reference)) for m in others])
    return {m: Difference(means[m] - means[reference], chance) for m, chance in zip(others, p)}


def best_of(keys: Mapping[str, Sequence[str]], store: Store, metric: str) -> tuple[str, dict[str, Difference]]:
    """The method with the best mean, and every other one minus it; p-values corrected for all pairs of the row."""
    names, means = list(keys), _means(keys, store, metric)
    best = min(means, key=lambda m: metric_of(metric).cost(means[m]))
    p = from_the_best(*measured(keys, store, metric), names.index(best))
    return best, {m: Difference(means[m] - means[best], p[k]) for k, m in enumerate(names) if m != best}


def from_the_best(values: np.ndarray, shared: np.ndarray, best: int) -> dict[int, float]:
    """p-value of each other method against the one that has turned out best: corrected by Holm over all pairs."""
    pairs = list(combinations(range(len(values)), 2))
    corrected = zip(pairs, p_values(values, shared, pairs))
    return {i + j - best: p for (i, j), p in corrected if best in (i, j)}


def marks_of(best: str, others: Mapping[str, Difference]) -> dict[str, str]:
    """bold: the best, if it differs significantly from all; italic: the best and those that do not."""
    if all(d.real for d in others.values()):
        return {best: "bold"}
    return dict.fromkeys([best, *(m for m, d in others.items() if not d.real)], "italic")


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
