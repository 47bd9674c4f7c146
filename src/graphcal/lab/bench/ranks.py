"""Many methods on many tasks: mean ranks, and which methods cannot be told apart (Demšar 2006, JMLR 7).

On each of T tasks the methods are ranked, the best 1, ties shared. Friedman's test asks whether ranks differ at all. Two
methods differ when their mean ranks are further apart than the critical difference of Nemenyi's test,
    CD = q_α √(k (k + 1) / (6 T)),     q_α the studentised range over √2, for k methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ranks:
    """Mean ranks, best first."""

    names: tuple[str, ...]
    mean: tuple[float, ...]
    critical_difference: float
    p: float  # of Friedman's test that all methods are equal
    tasks: int

    def alike(self) -> list[tuple[int, int]]:
        """Longest runs of methods that cannot be told apart, as (first, last)."""
        runs: list[tuple[int, int]] = []
        for i in range(len(self.mean)):
            j = max(k for k in range(len(self.mean)) if self.mean[k] - self.mean[i] <= self.critical_difference)
            if j > i and (not runs or j > runs[-1][1]):
                runs.append((i, j))
        return runs


def rank_methods(scores: Mapping[str, Sequence[float]], level: float = 0.95) -> Ranks:
    """Ranks of methods from their score on each task, smaller is better."""
    from scipy import stats  # takes half a second to import

    lengths = {len(v) for v in scores.values()}
    if len(scores) < 3 or len(lengths) != 1 or lengths.pop() < 2:
        raise ValueError("ranks need three methods or more with scores on the same two tasks or more")
    names = list(scores)
    table = np.array([scores[n] for n in names], dtype=float)  # (k, T)
    k, T = table.shape
    rank = np.apply_along_axis(stats.rankdata, 0, table).mean(axis=1)
    q = stats.studentized_range.ppf(level, k, np.inf) / np.sqrt(2)
    cd = float(q * np.sqrt(k * (k + 1) / (6 * T)))
    order = np.argsort(rank, kind="stable")
    p = float(stats.friedmanchisquare(*table).pvalue)
    return Ranks(tuple(names[i] for i in order), tuple(float(rank[i]) for i in order), cd, p, T)
