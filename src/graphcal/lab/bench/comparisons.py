"""Significance of differences between methods.

A difference over R runs has an error of its own in every run, seen in the scatter of d_r, and one that all runs share:

    Var(mean d) = Var(d_r) / R + shared.

Same test nodes in every run (seeds of one split): shared is the sampling error of the nodes, by resampling (`sampling_errors`).
Other test nodes in each run (several splits): runs share f = n_test / N of their nodes, so shared = (1 - 1/R) f mean(sd_r²) with
sd_r the sampling error of d_r. mean(d) / sqrt(Var) is read against Student's t with Satterthwaite's degrees of freedom: R - 1 for
the scatter, infinitely many for the shared part.
The best of a row is compared with every other method (`best_of`). It is chosen by the same values, so p-values are corrected for
all K (K - 1) / 2 pairs of the row, and not only for the K - 1 that contain it (Holm). With K - 1, one of 13 equal methods is told
from the best in 18 % of the rows.
Over graphs (`over_graphs`): each graph gives one difference, its rows averaged, because rows of one graph share test nodes;
under the null hypothesis its sign is a coin.
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
    """bold: the best, told apart from all; italic: the best and those that are not told apart from it."""
    if all(d.real for d in others.values()):
        return {best: "bold"}
    return dict.fromkeys([best, *(m for m, d in others.items() if not d.real)], "italic")
