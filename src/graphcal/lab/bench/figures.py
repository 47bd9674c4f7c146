"""Figures from records: which numbers go on which axis. The drawing itself is `graphcal.plots`.

reliability  one diagram for each row and method (or each value of ``columns``)
histograms   confidences of right and wrong predictions, likewise
sweep        metrics over an axis, one line per method
runtime      seconds against ECE, one panel per graph
table, list  difference of every method to TS (or ``against``) on each graph, where there are five graphs or more

Figures of metrics over an axis. What ``[figure]`` of a preset says:

x, label, scale, linear, ticks, range    the axis, its name, its scale, marks, and the range that is shaded
metrics                                  a panel per metric and graph, one line per method, the same y for all graphs
groups                                   a row of panels for each group of methods
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from graphcal.lab.bench.presets import matches
from graphcal.lab.bench.tabulation import Entry, Row, Table
from graphcal.lab.plots.curves import STYLE, draw_curves, draw_dots, draw_points, place_labels
from graphcal.metrics.bins import Reliability, mean_reliability
from graphcal.metrics.names import metric_of
from graphcal.plots import blank, draw_confidences, draw_reliability, ink, styled

if TYPE_CHECKING:
    from graphcal.plots import Axes, Figure


def sweep(table: Table) -> Figure | None:
    """The figure of a preset of this kind, or None where nothing is finished."""
    x = table.preset.figure["x"]
    graphs: dict[str, list[Row]] = {}
    for row in table.rows:
        if any(entry.records for entry in row.entries.values()):
            graphs.setdefault(row_name(table, row, [x]), []).append(row)
    if not graphs:
        return None
    graphs = {name: sorted(rows, key=lambda row: float(row.axis_values[x])) for name, rows in graphs.items()}
    return _values(table, graphs)


def _values(table: Table, graphs: Mapping[str, Sequence[Row]]) -> Figure:
    """Metrics over an axis: one line per method with bars of one sd, a panel per graph and metric, the same y for all graphs."""
    settings = table.preset.figure
    x, metrics = settings["x"], settings["metrics"]
    across = [(name, rows, metric) for name, rows in graphs.items() for metric in metrics]
    groups: Mapping[str, Sequence[str]] = settings.get("groups", {"": table.methods})
    figure = blank(2.75 * len(across) + 0.3, 2.3 * len(groups) + 0.3)
    axes = figure.subplots(len(groups), len(across), squeeze=False, sharey=len(metrics) == 1, sharex="col")
    for line, (group, methods) in enumerate(groups.items()):
        for number, (name, rows, metric) in enumerate(across):
            ax = axes[line][number]
            ax.set_ylim(*_limits(table, across, metric))
            _sweep_panel(table, methods, rows, metric, ax)
            title = name if len(graphs) > 1 else metric_of(metric).title
            letter(ax, line * len(across) + number, f"{title}, {group}" if group else title)
            ax.set_xlabel(settings.get("label", x) if line == len(groups) - 1 else "")
            ax.set_ylabel(metric_of(metric).heading if number == 0 or len(metrics) > 1 else "")
    return figure


def _sweep_panel(table: Table, methods: Sequence[str], rows: Sequence[Row], metric: str, ax: Axes) -> None:
    """The curves of some methods on one graph; the floor where the metric has one, and the range that is shaded."""
    settings = table.preset.figure
    if settings.get("scale"):
        ax.set_xscale(settings["scale"], **({"linthresh": settings["linear"]} if "linear" in settings else {}))
    if "linear" in settings:  # the scale changes here: two strokes across the axis
        stroke: Any = [(-1, -1.6), (1, 1.6)]
        for shift in (0.985, 1.015):
            ax.plot(
                [settings["linear"] * shift], [0], transform=ax.get_xaxis_transform(), marker=stroke, markersize=7,
                color=ink(ax), linestyle="", clip_on=False, zorder=5,
            )  # fmt: skip
    if "range" in settings:
        ax.axvspan(*settings["range"], color="#888888", alpha=0.12, linewidth=0)
    if "ticks" in settings:
        ax.set_xticks(settings["ticks"], [short_number(tick) for tick in settings["ticks"]])
        ax.tick_params(axis="x", which="minor", bottom=False)
    floors = [[row.entries[m].mean("ece_floor") for m in methods if row.entries[m].records] for row in rows]
    floor = [statistics.fmean(those) for those in floors] if metric == "ece" and all(floors) else []
    values = [float(row.axis_values[settings["x"]]) for row in rows]
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


def row_name(table: Table, row: Row, without: Sequence[str] = ()) -> str:
    """Name of a row: the axes that vary."""
    shown = [n for n in table.axes if n not in without] or ["dataset"]
    return ", ".join(str(row.axis_values[n]) for n in shown)


def short_number(value: float) -> str:
    """5e-3, as decays are written."""
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if 0 < value < 0.01 else f"{value:g}"


def letter(ax: Axes, number: int, title: str = "") -> None:
    ax.set_title(f"{chr(ord('a') + number)}  {title}".rstrip(), loc="left", fontweight="bold")


SECONDS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # ticks of a logarithmic axis of time
TICKS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30)  # of a logarithmic axis of ECE, in percent


def figure_of(table: Table) -> Figure | None:
    """The figure of a preset, or None where there is nothing to draw yet."""
    draw: dict[str, Callable[[Table], Figure | None]] = {
        "reliability": _reliabilities,
        "histograms": _histograms,
        "sweep": sweep,
        "runtime": _runtime,
        "table": _dots,
        "list": _dots,
        "releases": lambda table: None,  # `graphcal.lab.bench.release_pages` draws these
    }
    if table.preset.kind not in draw:
        raise ValueError(f"unknown kind {table.preset.kind!r} of preset; choose one of {', '.join(draw)}")
    with styled(STYLE):
        return draw[table.preset.kind](table)


def reliability_of(entry: Entry) -> Reliability:
    """The mean reliability over runs, from the bins of the records."""
    return mean_reliability([_reliability(record.result["bins"]) for record in entry.records])


def _reliability(bins: Mapping[str, Any]) -> Reliability:
    count = torch.tensor(bins["count"], dtype=torch.float64)
    conf = torch.tensor([c or 0.0 for c in bins["confidence"]], dtype=torch.float64)
    right = torch.tensor(bins["right"], dtype=torch.float64)
    # sums of c (1 - c) and (right - c)^2 with c at its bin's mean: exact but for the spread of c inside a bin
    variance = count * conf * (1 - conf)
    square = right * (1 - conf) ** 2 + (count - right) * conf**2
    return Reliability(torch.tensor(bins["edges"], dtype=torch.float64), count, count * conf, right, variance, square)


def _diagrams(table: Table) -> dict[str, list[tuple[str, Entry]]]:
    """Panels of each graph: methods, or the values of one axis."""
    across = table.preset.figure.get("columns")
    lines: dict[str, list[tuple[str, Entry]]] = {}
    for row in table.rows:
        line = lines.setdefault(row_name(table, row, [across] if across else []), [])
        for method, entry in row.entries.items():
            short = table.preset.figure.get("names", {})
            label = short.get(method, table.preset.title_of(method))
            title = f"{across} {short_number(row.axis_values[across])}" if across else label
            if entry.records:
                line.append((title, entry))
    return {name: line for name, line in lines.items() if line}


def _grid_of(
    lines: Mapping[str, Sequence[tuple[str, Entry]]],
    draw: Callable[[Reliability, Axes], None],
    height: float,
    lower_right: bool,
) -> tuple[Figure, list[Axes]]:
    """A row of panels for each graph, the same axes everywhere; columns are named above, graphs at the left, the ECE inside."""
    columns = max(len(line) for line in lines.values())
    figure = blank(1.95 * columns + 0.5, height * len(lines) + 0.5)
    axes = figure.subplots(len(lines), columns, squeeze=False, sharex=True, sharey=True)
    used: list[Axes] = []
    for number, (row_axes, (name, line)) in enumerate(zip(axes, lines.items())):
        for ax in row_axes[len(line) :]:
            ax.set_visible(False)
        for ax, (title, entry) in zip(row_axes, line):
            draw(reliability_of(entry), ax)
            letter(ax, len(used), title if number == 0 else "")
            words = f"ECE {entry.mean('ece'):.1f} ± {entry.sd('ece'):.1f}\nfloor {entry.mean('ece_floor'):.1f}"
            x, y = (0.97, 0.16) if lower_right else (0.04, 0.84)
            ax.text(
                x, y, words, transform=ax.transAxes, ha="right" if lower_right else "left", fontsize=7, linespacing=1.35
            )
            ax.set_xlabel("confidence" if number == len(lines) - 1 else "")
            if ax is not row_axes[0]:
                ax.set_ylabel("")
            used.append(ax)
        row_axes[0].set_ylabel(f"{name}\n\n{row_axes[0].get_ylabel()}")
    return figure, used


def _reliabilities(table: Table) -> Figure | None:
    lines = _diagrams(table)
    if not lines:
        return None

    def draw(rel: Reliability, ax: Axes) -> None:
        draw_reliability(rel, ax)
        ax.set_title("")

    figure, used = _grid_of(lines, draw, 1.95, lower_right=True)
    handles, labels = used[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def _histograms(table: Table) -> Figure | None:
    lines = _diagrams(table)
    if not lines:
        return None

    def draw(rel: Reliability, ax: Axes) -> None:
        draw_confidences(rel, ax)
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()

    figure, used = _grid_of(lines, draw, 1.55, lower_right=False)
    handles, labels = used[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def _runtime(table: Table) -> Figure | None:
    """Seconds against ECE, a panel per graph with the same y; the floor is dashed."""
    rows = [row for row in table.rows if any(entry.records for entry in row.entries.values())]
    if not rows:
        return None
    figure = blank(3.6 * len(rows), 4.2)
    axes = figure.subplots(1, len(rows), squeeze=False, sharey=True)[0]
    points = []
    for number, (ax, row) in enumerate(zip(axes, rows)):
        done = {m: entry for m, entry in row.entries.items() if entry.records}
        seconds = [sum(entry.seconds(part) for part in ("train", "search", "fit", "apply")) for entry in done.values()]
        ece, sd = [entry.mean("ece") for entry in done.values()], [entry.sd("ece") for entry in done.values()]
        short = table.preset.figure.get("names", {})
        names = [short.get(m, table.preset.title_of(m)) for m in done]
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_yticks(TICKS, [str(tick) for tick in TICKS])
        ax.tick_params(axis="y", which="minor", left=False, labelleft=False)
        draw_points(seconds, ece, sd, ax)
        ax.set_xticks([tick for tick in SECONDS if ax.get_xlim()[0] < tick < ax.get_xlim()[1]])
        ax.xaxis.set_major_formatter("{x:g}")
        ax.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
        floor = statistics.fmean(entry.mean("ece_floor") for entry in done.values())
        ax.axhline(floor, linestyle="--", linewidth=0.9, color="#555555", alpha=0.7)
        ax.text(0.99, floor, "floor", transform=ax.get_yaxis_transform(), ha="right", va="top", fontsize=7, alpha=0.7)
        letter(ax, number, row_name(table, row))
        ax.set_xlabel("seconds of one core: training, search, fit")
        points.append((names, seconds, ece, sd, ax))
    axes[0].set_ylabel(metric_of("ece").heading)
    ends = [(e - s, e + s) for _, _, ece, sd, _ in points for e, s in zip(ece, sd)]
    axes[0].set_ylim(0.85 * min(low for low, _ in ends), 1.15 * max(high for _, high in ends))
    for names, seconds, ece, sd, ax in points:
        place_labels(names, seconds, ece, sd, ax)
    return figure


FEWEST_GRAPHS = 5  # of a figure of differences by graph


def _dots(table: Table) -> Figure | None:
    """Differences to the reference by graph, a line per method; a panel for each metric. Rows of one graph are averaged.

    Graphs of the summary's part (``[summary] where``) are marked. None where fewer than five graphs have the reference.
    """
    reference = table.preset.against or "ts"
    gaps = {metric: _gaps(table, reference, metric) for metric in DOTS}
    first = gaps[DOTS[0]]
    graphs = {graph for by_graph in first.values() for graph in by_graph}
    if len(graphs) < FEWEST_GRAPHS:
        return None
    order = sorted(first, key=lambda m: statistics.fmean(first[m].values()))
    part = table.preset.summary.get("where")
    marked = {graph for graph in graphs if part and matches(part, {"dataset": graph})}
    figure = blank(7.2, 0.19 * len(order) + 1.0)
    axes = figure.subplots(1, len(DOTS), sharey=True)
    for number, (ax, metric) in enumerate(zip(axes, DOTS)):
        draw_dots(
            {table.preset.title_of(m): gaps[metric][m] for m in order}, marked, ax, table.preset.summary.get("part", "")
        )
        letter(ax, number, metric_of(metric).heading)
        ax.set_xlabel(f"minus that of {table.preset.title_of(reference)}; left of zero is better")
    handles = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels())}
    handles["mean"] = axes[0].plot([], [], "|", color="#222222", markersize=8, markeredgewidth=1.6)[0]
    labels = [f"one of {len(graphs)} graphs" if name == "other graphs" and not marked else name for name in handles]
    figure.legend(handles.values(), labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


DOTS = ("nll", "ece")  # metrics of a figure of differences by graph, smaller is better


def _gaps(table: Table, reference: str, metric: str) -> dict[str, dict[str, float]]:
    """Method -> graph -> mean difference to the reference, on the runs that both have."""
    gaps: dict[str, dict[str, list[float]]] = {}
    for row in table.rows:
        other = row.entries.get(reference)
        for m, entry in row.entries.items():
            both = entry.minus(other, metric) if other is not None and m != reference else []
            if both:
                gaps.setdefault(m, {}).setdefault(str(row.axis_values["dataset"]), []).append(statistics.fmean(both))
    return {m: {graph: statistics.fmean(values) for graph, values in by.items()} for m, by in gaps.items()}
