"""Many methods on many tasks: mean ranks, and which methods cannot be told apart (Demšar 2006, JMLR 7).

On each of T tasks the methods are ranked, the best 1, ties shared. Friedman's test asks whether ranks differ at all. Two
methods differ when their mean ranks are further apart than the critical difference of Nemenyi's test,
    CD = q_α √(k (k + 1) / (6 T)),     q_α the studentised range over √2, for k methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


def ranks(scores: Mapping[str, Sequence[float]], level: float = 0.95) -> Ranks:
    """Ranks of methods from their score on each task, smaller is better."""
    lengths = {len(v) for v in scores.values()}
    if len(scores) < 3 or len(lengths) != 1 or lengths.pop() < 2:
        raise ValueError("ranks needs three methods or more with scores on the same two tasks or more")
    names = list(scores)
    table = np.array([scores[n] for n in names], dtype=float)  # (k, T)
    k, T = table.shape
    rank = np.apply_along_axis(stats.rankdata, 0, table).mean(axis=1)
    q = stats.studentized_range.ppf(level, k, np.inf) / np.sqrt(2)
    cd = float(q * np.sqrt(k * (k + 1) / (6 * T)))
    order = np.argsort(rank, kind="stable")
    p = float(stats.friedmanchisquare(*table).pvalue)
    return Ranks(tuple(names[i] for i in order), tuple(float(rank[i]) for i in order), cd, p, T)


def draw_ranks(found: Ranks, ax: Axes) -> None:
    """Critical-difference diagram: methods on the line of mean ranks, a bar over those that cannot be told apart."""
    k = len(found.names)
    colour = str(ax.xaxis.label.get_color())
    ax.hlines(0, 1, k, color=colour, linewidth=1)
    for r in range(1, k + 1):
        ax.vlines(r, 0, 0.12, color=colour, linewidth=1)
        ax.text(r, 0.2, str(r), ha="center", va="bottom", fontsize="small", color=colour)
    for i, (name, mean) in enumerate(zip(found.names, found.mean)):
        left = i < (k + 1) // 2
        level = -(i if left else k - 1 - i) * 0.45 - 0.7
        end = 0.7 if left else k + 0.3
        ax.plot([mean, mean, end], [0, level, level], color=colour, linewidth=0.8)
        ax.text(
            end + (-0.05 if left else 0.05),
            level,
            f"{name} {mean:.2f}",
            ha="right" if left else "left",
            va="center",
            color=colour,
        )
    for row, (i, j) in enumerate(found.alike()):
        ax.hlines(-0.18 - 0.14 * row, found.mean[i] - 0.04, found.mean[j] + 0.04, color="#0072b2", linewidth=4)
    ax.hlines(0.75, 1, 1 + found.critical_difference, color="#d55e00", linewidth=2)
    ax.text(
        1,
        0.85,
        f"critical difference {found.critical_difference:.2f} on {found.tasks} tasks",
        fontsize="small",
        color=colour,
    )
    ax.set_xlim(-0.8, k + 1.8)
    ax.set_ylim(-0.45 * ((k + 1) // 2) - 0.7, 1.3)
    ax.axis("off")
