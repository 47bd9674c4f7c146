"""Draw curves with error bars and named points for print, with labels that do not overlap.

Colours are Okabe and Ito's; a method also has a marker of its own, so that the pictures survive grey print.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcal.plots import ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes


STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 8.5, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "legend.fontsize": 7.5, "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6,
    "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.3, "lines.markersize": 4.5,
    "axes.grid": True, "grid.linewidth": 0.4, "grid.alpha": 0.35, "axes.axisbelow": True,
}  # fmt: skip
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#222222", "#8c6d31", "#a50026")
MARKERS = "osD^vPX<>*"
LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
Curve = tuple[Sequence[float], Sequence[float]]  # means and standard deviations


def draw_curves(x: Sequence[float], curves: Mapping[str, Curve], ax: Axes, floor: Sequence[float] = ()) -> None:
    """A line per name with bars of one standard deviation, named at its right end where there are several; the floor dashed."""
    if len(floor):
        ax.plot(x, floor, "--", color=ink(ax), linewidth=0.9, alpha=0.6)
        k, side = _free_place(floor, list(curves.values()), 0.06 * (ax.get_ylim()[1] - ax.get_ylim()[0]))
        ax.annotate(
            "floor", (x[k], floor[k]), xytext=(0, 3 * side), textcoords="offset points", alpha=0.7, fontsize=7,
            va="bottom" if side > 0 else "top", ha="left" if k == 0 else "center",
        )  # fmt: skip
    ends = []
    for k, (name, (mean, sd)) in enumerate(curves.items()):
        shown = COLOURS[k % len(COLOURS)]
        ax.errorbar(
            x, mean, yerr=sd, color=shown, marker=MARKERS[k % len(MARKERS)], linestyle=LINES[k % len(LINES)],
            elinewidth=0.7, capsize=1.8, capthick=0.7,
        )  # fmt: skip
        ends.append((name, float(mean[-1]), shown))
    if len(ends) > 1:
        _label_ends(float(x[-1]), ends, ax)


def _free_place(floor: Sequence[float], curves: Sequence[Curve], away: float) -> tuple[int, int]:
    """Find the point farthest from every curve and its bars, for the name of the floor: index of x, and 1 above or -1 below."""

    def room(k: int, side: int) -> float:
        y = floor[k] + side * away
        return min((abs(mean[k] - y) - sd[k] for mean, sd in curves if mean[k] == mean[k]), default=0.0)

    places = [(k, side) for k in range(len(floor)) for side in (-1, 1)]
    return max(places, key=lambda spot: round(min(room(*spot), away), 9))  # the first that is free


def _label_ends(x: float, ends: Sequence[tuple[str, float, str]], ax: Axes) -> None:
    """Names right of the last point, moved apart where they would touch."""
    low, high = ax.get_ylim()
    step = (high - low) * 0.085
    places = [y for _, y, _ in sorted(ends, key=lambda end: end[1])]
    for k in range(1, len(places)):
        places[k] = max(places[k], places[k - 1] + step)
    excess = max(0.0, places[-1] - (high - step / 3)) if places else 0.0
    for (name, y, colour), position in zip(sorted(ends, key=lambda end: end[1]), places):
        ax.annotate(
            name, (x, y), xytext=(1.03, position - excess), textcoords=("axes fraction", "data"), color=colour, va="center",
            fontsize=7.5, annotation_clip=False,
        )  # fmt: skip
    ax.set_ylim(low, high)


def draw_points(x: Sequence[float], y: Sequence[float], error: Sequence[float], ax: Axes) -> None:
    """Points with a bar of one standard deviation, each with a marker and a colour of its own; `place_labels` names them."""
    for k, (a, b, e) in enumerate(zip(x, y, error)):
        ax.errorbar(
            [a], [b], yerr=[e], fmt=MARKERS[k % len(MARKERS)], color=COLOURS[k % len(COLOURS)], markersize=6,
            elinewidth=0.7, capsize=1.8, capthick=0.7,
        )  # fmt: skip
    ax.set_xlim(min(x) / 2.5, max(x) * 7)


def place_labels(
    names: Sequence[str], x: Sequence[float], y: Sequence[float], error: Sequence[float], ax: Axes
) -> None:
    """Names beside points, each at the nearest place that touches no point, bar or other name; the axes must be final."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    figure: Any = ax.figure
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    frame = ax.get_window_extent(renderer)
    ends = ax.transData.transform([(a, b + sign * e) for a, b, e in zip(x, y, error) for sign in (-1, 1)])  # (2N, 2)
    points, beside = ax.transData.transform(np.column_stack([x, y])), np.array([2.0, 0.0])
    solid = [Bbox([low - beside, high + beside]) for low, high in ends.reshape(-1, 2, 2)]
    solid += [Bbox([point - 5, point + 5]) for point in points]
    for k in np.argsort(points[:, 1]):
        tried = []
        for dx, dy, side in PLACES:
            text = ax.annotate(
                names[k], (x[k], y[k]), xytext=(dx, dy), textcoords="offset points", ha=side, va="center", fontsize=7.5,
                color=ink(ax), annotation_clip=False, arrowprops=LEADER if max(abs(dx), abs(dy)) > 8 else None,
            )  # fmt: skip
            text.set_in_layout(False)
            text.update_positions(renderer)
            box = Bbox.from_bounds(*Text.get_window_extent(text, renderer).bounds).padded(0.5)  # without its leader
            outside = box.x1 > frame.x1 + 8 or box.x0 < frame.x0 or box.y1 > frame.y1 or box.y0 < frame.y0
            hits = sum(bool(box.overlaps(other)) for other in solid) + 3.0 * outside + 0.004 * (abs(dx) + abs(dy))
            tried.append((hits, text, box))
        tried.sort(key=lambda one: one[0])
        for _, text, _ in tried[1:]:
            text.remove()
        solid.append(tried[0][2])


LEADER = {"arrowstyle": "-", "linewidth": 0.5, "color": "#888888", "shrinkA": 0, "shrinkB": 3}
PLACES = [
    (sign * away, dy, "left" if sign > 0 else "right")
    for reach in (0, 7, 14, 22, 30, 40, 55) for away in (8, 20) for sign in (1, -1) for dy in (reach, -reach)
] + [(0, sign * (reach + 9), "center") for reach in (0, 7, 14, 22, 30, 40) for sign in (1, -1)]  # fmt: skip


def draw_dots(
    differences: Mapping[str, Mapping[str, float]], marked: Collection[str], ax: Axes, part: str = "marked"
) -> None:
    """Draw a line of dots per method, first on top: its difference to a reference (zero) on each graph, and their mean as a bar.

    Graphs in `marked` are orange diamonds, named by `part` in the legend. A point far outside is a triangle at the edge.
    """
    values = np.array([value for by_graph in differences.values() for value in by_graph.values()])
    low, high = np.quantile(values, [0.03, 0.97]) if len(values) else (-1.0, 1.0)
    low, high = min(low, 0.0), max(high, 0.0)
    ends, far = (values.min(initial=low), values.max(initial=high)), 0.4 * (high - low)
    low, high = ends[0] if ends[0] > low - far else low, ends[1] if ends[1] < high + far else high
    room = 0.08 * (high - low) or 1.0
    ax.set_xlim(low - room, high + room)
    ax.axvline(0, color=ink(ax), linewidth=0.8)
    kinds: dict[bool, dict[str, Any]] = {
        False: {"marker": "o", "markersize": 3.6, "color": "#7a8794", "alpha": 0.75, "label": "other graphs"},
        True: {"marker": "D", "markersize": 4.0, "color": "#d55e00", "alpha": 0.9, "label": f"graphs: {part}"},
    }
    for line, by_graph in enumerate(differences.values()):
        for mark, style in kinds.items():
            of_kind = [value for graph, value in by_graph.items() if (graph in marked) == mark]
            inside = [value for value in of_kind if low - room <= value <= high + room]
            ax.plot(inside, [line] * len(inside), linestyle="", clip_on=False, **(style if inside else {}))
            for value in set(of_kind) - set(inside):
                end = high + room if value > high else low - room
                shape = ">" if value > high else "<"
                ax.plot(
                    [end], [line], shape, color=style["color"], markersize=4, clip_on=False, label="beyond the axis"
                )
        if by_graph:
            mean = float(np.clip(np.mean(list(by_graph.values())), low - room, high + room))
            ax.plot([mean, mean], [line - 0.32, line + 0.32], color=ink(ax), linewidth=1.6, solid_capstyle="butt")
    ax.set_yticks(range(len(differences)), list(differences))
    ax.set_ylim(len(differences) - 0.4, -0.6)
