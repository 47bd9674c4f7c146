"""Figures of metrics over an axis. What ``[figure]`` of a preset says:

x, label, scale, linear, ticks, range    the axis, its name, its scale, marks, and the range that is shaded
metrics                                  a panel per metric and graph, one line per method, the same y for all graphs
groups                                   a row of panels for each group of methods
against, bright, limits                  instead of values: how far each method is from this one, on the runs both have; a panel
                                         for the mean and one per graph; ``bright`` methods in colour, all others grey
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from graphcal.lab.bench.tabulation import Row, Table
from graphcal.lab.plots.curves import draw_curves, draw_differences
from graphcal.metrics.names import metric_of
from graphcal.plots.figure import blank

if TYPE_CHECKING:
    from graphcal.plots.figure import Axes, Figure

COLUMNS = 4  # panels beside each other in a figure of differences


def sweep(table: Table) -> Figure | None:
    """The figure of a preset of this kind, or None where nothing is finished."""
    x = table.preset.figure["x"]
    graphs: dict[str, list[Row]] = {}
    for row in table.rows:
        if any(entry.records for entry in row.entries.values()):
            graphs.setdefault(row_name(table, row, [x]), []).append(row)
    if not graphs:
        return None
    graphs = {name: sorted(rows, key=lambda row: float(row.place[x])) for name, rows in graphs.items()}
    return _differences(table, graphs) if "against" in table.preset.figure else _values(table, graphs)


def _values(table: Table, graphs: Mapping[str, Sequence[Row]]) -> Figure:
    """Metrics over an axis: one line per method with bars of one sd, a panel per graph and metric, the same y for all graphs."""
    asked = table.preset.figure
    x, metrics = asked["x"], asked["metrics"]
    across = [(name, rows, metric) for name, rows in graphs.items() for metric in metrics]
    groups: Mapping[str, Sequence[str]] = asked.get("groups", {"": table.methods})
    figure = blank(2.75 * len(across) + 0.3, 2.3 * len(groups) + 0.3)
    axes = figure.subplots(len(groups), len(across), squeeze=False, sharey=len(metrics) == 1, sharex="col")
    for line, (said, methods) in enumerate(groups.items()):
        for number, (name, rows, metric) in enumerate(across):
            ax = axes[line][number]
            ax.set_ylim(*_limits(table, across, metric))
            _sweep_panel(table, methods, rows, metric, ax)
            title = name if len(graphs) > 1 else metric_of(metric).title
            letter(ax, line * len(across) + number, f"{title}, {said}" if said else title)
            ax.set_xlabel(asked.get("label", x) if line == len(groups) - 1 else "")
            ax.set_ylabel(metric_of(metric).heading if number == 0 or len(metrics) > 1 else "")
    return figure


def _sweep_panel(table: Table, methods: Sequence[str], rows: Sequence[Row], metric: str, ax: Axes) -> None:
    """The curves of some methods on one graph; the floor where the metric has one, and the range that is shaded."""
    asked = table.preset.figure
    if asked.get("scale"):
        ax.set_xscale(asked["scale"], **({"linthresh": asked["linear"]} if "linear" in asked else {}))
    if "range" in asked:
        ax.axvspan(*asked["range"], color="#888888", alpha=0.12, linewidth=0)
    if "ticks" in asked:
        ax.set_xticks(asked["ticks"], [short_number(tick) for tick in asked["ticks"]])
        ax.tick_params(axis="x", which="minor", bottom=False)
    floors = [[row.entries[m].mean("ece_floor") for m in methods if row.entries[m].records] for row in rows]
    floor = [statistics.fmean(those) for those in floors] if metric == "ece" and all(floors) else []
    values = [float(row.place[asked["x"]]) for row in rows]
    draw_curves(values, _curves(table, methods, rows, metric), ax, floor)


def _curves(
    table: Table, methods: Sequence[str], rows: Sequence[Row], metric: str
) -> dict[str, tuple[list[float], list[float]]]:
    """Means and deviations by method; a method that says the same as one before it is left out."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for m in methods:
        done = [row.entries[m] for row in rows]
        curve = (
            [e.mean(metric) if e.records else float("nan") for e in done],
            [e.sd(metric) if e.records else 0.0 for e in done],
        )
        if curve not in curves.values():
            curves[table.preset.title_of(m)] = curve
    return curves


def _limits(table: Table, across: Sequence[tuple[str, Sequence[Row], str]], metric: str) -> tuple[float, float]:
    """Room for every curve of this metric with its bars."""
    ends = [
        mean + sign * sd
        for _, rows, of in across
        if of == metric
        for means, sds in _curves(table, table.methods, rows, metric).values()
        for mean, sd in zip(means, sds)
        for sign in (-1, 1)
        if mean == mean
    ]
    low, high = min(ends), max(ends)
    room = 0.06 * max(high - low, 0.5)
    return (0.0 if metric == "ece" else low - room), high + room


def _differences(table: Table, graphs: Mapping[str, Sequence[Row]]) -> Figure:
    """How far the methods are from one of them, by graph, and their means over the graphs that have all values of x."""
    asked = table.preset.figure
    metric = asked["metrics"][0]
    found = {name: _distances(table, rows, metric) for name, rows in graphs.items()}
    places = sorted({x for by_method in found.values() for points in by_method.values() for x in points})
    mean: dict[str, dict[float, float]] = {}
    for m in table.methods:
        at = {x: [f[m][x] for f in found.values() if x in f.get(m, {})] for x in places}
        mean[m] = {x: statistics.fmean(values) for x, values in at.items() if values}
    shown = {f"mean of {len(found)} graphs": mean, **found}
    lines = -(-len(shown) // COLUMNS)
    figure = blank(2.3 * COLUMNS, 1.75 * lines + 0.5)
    axes = figure.subplots(lines, COLUMNS, squeeze=False, sharex=True, sharey=True).flat
    bright = {m: table.preset.title_of(m) for m in asked["bright"] if m in table.methods}
    for number, (ax, (name, curves)) in enumerate(zip(axes, shown.items())):
        draw_differences(curves, bright, ax)
        ax.set_xscale(asked.get("scale", "linear"))
        ax.set_ylim(*asked["limits"])
        ax.set_xticks(places, [short_number(x) for x in places], rotation=60)
        ax.tick_params(axis="x", which="minor", bottom=False)
        letter(ax, number, name)
    for ax in list(axes)[len(shown) :]:
        ax.set_axis_off()
    figure.supxlabel(asked.get("label", asked["x"]), fontsize="medium")
    other = table.preset.title_of(asked["against"])
    figure.supylabel(f"{metric_of(metric).title} minus that of {other}", fontsize="medium")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def _distances(table: Table, rows: Sequence[Row], metric: str) -> dict[str, dict[float, float]]:
    """Method -> value of x -> mean difference from the method ``against``, over the runs that both have."""
    x, other = table.preset.figure["x"], table.preset.figure["against"]
    found: dict[str, dict[float, float]] = {}
    for row in rows:
        for m in [m for m in row.entries if m != other and other in row.entries]:
            both = row.entries[m].minus(row.entries[other], metric)
            if both:
                found.setdefault(m, {})[float(row.place[x])] = statistics.fmean(both)
    return found


def row_name(table: Table, row: Row, without: Sequence[str] = ()) -> str:
    """What a row is called: the axes that vary."""
    shown = [n for n in table.axes if n not in without] or ["dataset"]
    return ", ".join(str(row.place[n]) for n in shown)


def short_number(value: float) -> str:
    """5e-3, as decays are written."""
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if 0 < value < 0.01 else f"{value:g}"


def letter(ax: Axes, number: int, title: str = "") -> None:
    ax.set_title(f"{chr(ord('a') + number)}  {title}".rstrip(), loc="left", fontweight="bold")
