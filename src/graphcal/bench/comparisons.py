"""Which differences between methods are more than chance.

Same test nodes in every run (seeds of one split): the paired comparison of `graphcal.metrics.compare`, nodes and seeds
resampled. Other test nodes in each run (several splits): the runs' differences d_r scatter because of training and of the
nodes that a run has for itself; the nodes that runs share add the same error to all of them, which no scatter shows:

    Var(mean d) = Var(d_r) / R + (1 - 1/R) f mean(sd_r²),     f = n_test / N, the share of a run's test nodes in another's,

sd_r the error of d_r from resampling its nodes. mean(d) / sqrt(Var) is read against Student's t with R - 1 degrees of freedom.
Over graphs (`over_graphs`): each graph gives one difference, its rows averaged, because rows of one graph share test nodes;
under the null hypothesis its sign is a coin.
Over many graphs: mean ranks and their critical difference (`graphcal.metrics.ranks`, Demšar 2006).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from graphcal.bench.records import Record, Store
from graphcal.metrics.comparison import compare, holm, terms
from graphcal.metrics.names import metric_of
from graphcal.metrics.ranks import Ranks, rank_methods

LEVEL = 0.05
DRAWS = 200  # enough for the standard error of one run among several
FEWEST_GRAPHS = 5  # with fewer, mean ranks tell nothing apart


@dataclass(frozen=True)
class Difference:
    """Metric of a method minus that of another, and the chance of one as large if they were equal."""

    value: float
    p: float

    @property
    def real(self) -> bool:
        return self.p <= LEVEL


def difference(a: Sequence[str], b: Sequence[str], store: Store, metric: str) -> Difference:
    """Method ``a`` minus method ``b``: keys of their records, run by run."""
    records = [(store.record(k), store.record(m)) for k, m in zip(a, b)]
    observed = _mean([value(r, metric) - value(s, metric) for r, s in records])
    ours, labels = zip(*(store.nodes(k) for k in a))
    theirs = [store.nodes(m)[0] for m in b]
    bins = int(records[0][0].spec["bins"])
    if all(torch.equal(labels[0], y) for y in labels[1:]):
        return Difference(observed, compare(list(ours), theirs, labels[0], metric, bins=bins).p)
    each = [_one_run(p, q, y, metric, bins) for p, q, y in zip(ours, theirs, labels)]
    nodes = records[0][0].result["nodes"]
    p = over_splits([d for d, _ in each], [sd for _, sd in each], nodes["test"] / nodes.get("all", nodes["test"]))
    return Difference(observed, p)


def _one_run(a: Tensor, b: Tensor, y: Tensor, metric: str, bins: int) -> tuple[float, float]:
    """Metric of a minus metric of b, and its sd over nodes: a formula where the metric is a mean, resampled for ECE."""
    if metric == "ece":
        found = compare(a, b, y, metric, bins=bins, draws=DRAWS)
        return found.difference, found.sd
    each = terms(a, y, metric) - terms(b, y, metric)
    return float(each.mean()), float(each.std()) / len(each) ** 0.5


def over_splits(differences: Sequence[float], errors: Sequence[float], share: float) -> float:
    """p-value of no difference, for runs whose test nodes overlap by ``share``."""
    d, R = np.asarray(differences), len(differences)
    if R < 2:
        return 1.0
    variance = d.var(ddof=1) / R + (1 - 1 / R) * share * float(np.square(errors).mean())
    if variance == 0.0:
        return 1.0 if d.mean() == 0 else 0.0
    return float(2 * stats.t.sf(abs(d.mean()) / np.sqrt(variance), R - 1))


def over_graphs(differences: Sequence[float]) -> float:
    """p-value of no mean difference over independent graphs: the share of sign changes with a mean as far from zero (exact)."""
    d = np.asarray(differences, dtype=float)
    signs = 1 - 2 * ((np.arange(2 ** len(d))[:, None] >> np.arange(len(d))) & 1)
    means = np.abs(signs @ d)
    return float((means >= means[0] * (1 - 1e-12)).mean())


def value(record: Record, metric: str) -> float:
    return float(record.result["test"][metric])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def against(reference: str, keys: Mapping[str, Sequence[str]], store: Store, metric: str) -> dict[str, Difference]:
    """Every method minus the reference, p-values corrected by Holm for reading them all."""
    found = {m: difference(k, keys[reference], store, metric) for m, k in keys.items() if m != reference}
    return {m: Difference(d.value, p) for (m, d), p in zip(found.items(), holm([d.p for d in found.values()]))}


def best_of(keys: Mapping[str, Sequence[str]], store: Store, metric: str) -> tuple[str, dict[str, Difference]]:
    """The method with the best mean, and every other one minus it."""
    means = {m: _mean([value(store.record(k), metric) for k in of]) for m, of in keys.items()}
    best = min(means, key=lambda m: metric_of(metric).cost(means[m]))
    return best, against(best, keys, store, metric)


def marks_of(best: str, others: Mapping[str, Difference]) -> dict[str, str]:
    """bold: the best, told apart from all; italic: the best and those that are not told apart from it."""
    if all(d.real for d in others.values()):
        return {best: "bold"}
    return dict.fromkeys([best, *(m for m, d in others.items() if not d.real)], "italic")


def ranks_of(table: Sequence[Mapping[str, float]], metric: str) -> Ranks | None:
    """Mean ranks over graphs, each a value for every method; None for fewer than three methods or five graphs."""
    if len(table) < FEWEST_GRAPHS or len(table[0]) < 3:
        return None
    cost = metric_of(metric).cost
    return rank_methods({method: [cost(row[method]) for row in table] for method in table[0]}, 1 - LEVEL)
