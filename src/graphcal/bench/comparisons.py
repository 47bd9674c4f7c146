"""Which differences between methods are more than chance.

Same test nodes in every run (seeds of one split): the paired comparison of `graphcal.metrics.compare`, nodes and seeds
resampled. Other test nodes in each run (several splits): the corrected resampled t-test (Nadeau & Bengio 2003), because the
training sets of the runs overlap,

    t = mean(d) / sqrt((1/R + n_test/n_train) var(d)),     R - 1 degrees of freedom, d the runs' differences.

Over many rows: mean ranks and their critical difference (`graphcal.plots_ranks`, Demšar 2006).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from graphcal.bench.records import Record, Store
from graphcal.metrics.compare import METRICS, compare, holm
from graphcal.plots_ranks import Ranks, ranks

LEVEL = 0.05
HIGHER_IS_BETTER = ("accuracy",)


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
    labels = [store.nodes(k)[1] for k in a]
    if metric in METRICS and len(a) > 0 and all(torch.equal(labels[0], y) for y in labels[1:]):
        bins = int(records[0][0].spec["bins"])
        found = compare([store.nodes(k)[0] for k in a], [store.nodes(m)[0] for m in b], labels[0], metric, bins=bins)
        return Difference(_mean([value(r, metric) - value(s, metric) for r, s in records]), found.p)
    nodes = records[0][0].result["nodes"]
    return corrected_t(
        [value(r, metric) - value(s, metric) for r, s in records], nodes["test"] / max(1, nodes["train"])
    )


def corrected_t(differences: Sequence[float], test_to_train: float) -> Difference:
    d = np.asarray(differences)
    if len(d) < 2 or float(d.std()) == 0.0:
        return Difference(float(d.mean()), 1.0)
    t = d.mean() / np.sqrt((1 / len(d) + test_to_train) * d.var(ddof=1))
    return Difference(float(d.mean()), float(2 * stats.t.sf(abs(t), len(d) - 1)))


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
    sign = -1 if metric in HIGHER_IS_BETTER else 1
    means = {m: sign * _mean([value(store.record(k), metric) for k in of]) for m, of in keys.items()}
    best = min(means, key=lambda m: means[m])
    return best, against(best, keys, store, metric)


def ranks_of(table: Sequence[Mapping[str, float]], metric: str) -> Ranks | None:
    """Mean ranks over the rows, each a value for every method; None for fewer than three methods or two rows."""
    if len(table) < 2 or len(table[0]) < 3:
        return None
    sign = -1 if metric in HIGHER_IS_BETTER else 1
    return ranks({method: [sign * row[method] for row in table] for method in table[0]}, 1 - LEVEL)
