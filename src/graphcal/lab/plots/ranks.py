"""The critical-difference diagram of `graphcal.lab.bench.ranks` (Demšar 2006, JMLR 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphcal.lab.bench.ranks import Ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_NUMBERS = 12  # ranks that have their number written; of more, every other one


def draw_ranks(found: Ranks, ax: Axes) -> None:
    """Critical-difference diagram: methods on the line of mean ranks, a bar over those that cannot be told apart."""
    k = len(found.names)
    colour = str(ax.xaxis.label.get_color())
    ax.hlines(0, 1, k, color=colour, linewidth=1)
    for r in range(1, k + 1):
        ax.vlines(r, 0, 0.12, color=colour, linewidth=1)
        if k <= MOST_NUMBERS or r % 2:
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
