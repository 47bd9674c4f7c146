"""Figures from records: which numbers go on which axis. The drawing itself is `graphcal.plots`.

reliability  one diagram for each row and method (or each value of ``columns``)
histograms   confidences of right and wrong predictions, likewise
sweep        metrics over an axis, one line per method, one panel per metric and graph
runtime      seconds against ECE, one panel per graph
table        mean ranks with their critical difference, where there are enough rows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from graphcal.bench.tabulation import Entry, Row, Table
from graphcal.metrics.bins import Reliability, mean_reliability
from graphcal.metrics.names import metric_of
from graphcal.metrics.ranks import Ranks
from graphcal.plots import draw_confidences, draw_reliability, draw_runtime, draw_sweep
from graphcal.plots.figure import HEIGHT, panels

if TYPE_CHECKING:
    from graphcal.plots.figure import Axes, Figure


def figure_of(table: Table) -> Figure | None:
    """The figure of a preset, or None where there is nothing to draw yet."""
    draw: dict[str, Callable[[Table], Figure | None]] = {
        "reliability": lambda t: _diagrams(t, lambda rel, ax: draw_reliability(rel, ax)),
        "histograms": lambda t: _diagrams(t, draw_confidences),
        "sweep": _sweep,
        "runtime": _runtime,
        "table": _rank_diagram,
        "list": _rank_diagram,
    }
    if table.preset.kind not in draw:
        raise ValueError(f"unknown kind {table.preset.kind!r} of preset; choose one of {', '.join(draw)}")
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


def _name(table: Table, row: Row, without: Sequence[str] = ()) -> str:
    shown = [n for n in table.axes if n not in without] or ["dataset"]
    return ", ".join(str(row.place[n]) for n in shown)


def _diagrams(table: Table, draw: Callable[[Reliability, Axes], None]) -> Figure | None:
    """A line of panels for each graph: methods side by side, or the values of one axis."""
    across = table.preset.figure.get("columns")
    lines: dict[str, list[tuple[str, Entry]]] = {}
    for row in table.rows:
        line = lines.setdefault(_name(table, row, [across] if across else []), [])
        for method, entry in row.entries.items():
            title = f"{across} {row.place[across]:g}" if across else table.preset.title_of(method)
            if entry.records:
                line.append((title, entry))
    lines = {name: line for name, line in lines.items() if line}
    if not lines:
        return None
    figure, axes = panels(len(lines), max(len(line) for line in lines.values()))
    for axis in axes.flat:
        axis.set_visible(False)
    for place, (name, line) in zip(axes, lines.items()):
        for ax, (title, entry) in zip(place, line):
            ax.set_visible(True)
            draw(reliability_of(entry), ax)
            ax.set_title(
                f"{name}: {title}\nECE {entry.mean('ece'):.1f}, floor {entry.mean('ece_floor'):.1f}", fontsize="small"
            )
    return figure


def _sweep(table: Table) -> Figure | None:
    asked = table.preset.figure
    x, metrics = asked["x"], asked["metrics"]
    graphs: dict[str, list[Row]] = {}
    for row in table.rows:
        if any(entry.records for entry in row.entries.values()):
            graphs.setdefault(_name(table, row, [x]), []).append(row)
    if not graphs:
        return None
    figure, axes = panels(len(graphs), len(metrics), 1.5 * HEIGHT)
    for place, (name, rows) in zip(axes, graphs.items()):
        for ax, metric in zip(place, metrics):
            curves = {
                table.preset.title_of(m): [
                    row.entries[m].mean(metric) if row.entries[m].records else float("nan") for row in rows
                ]
                for m in table.methods
            }
            draw_sweep(
                [float(row.place[x]) for row in rows], curves, ax, asked.get("label", x), bool(asked.get("log", False))
            )
            ax.set_title(name, fontsize="small")
            ax.set_ylabel(metric_of(metric).heading)
    return figure


def _runtime(table: Table) -> Figure | None:
    rows = [row for row in table.rows if any(entry.records for entry in row.entries.values())]
    if not rows:
        return None
    figure, axes = panels(len(rows), 1, 2.6 * HEIGHT)
    for ax, row in zip(axes[:, 0], rows):
        done = {m: entry for m, entry in row.entries.items() if entry.records}
        seconds = [sum(entry.seconds(part) for part in ("train", "search", "fit", "apply")) for entry in done.values()]
        ece = [entry.mean("ece") / 100 for entry in done.values()]
        draw_runtime([table.preset.title_of(m) for m in done], seconds, ece, ax)
        ax.set_xlabel("seconds of one core: training, search, fit")
        ax.set_title(_name(table, row), fontsize="small")
    return figure


def _rank_diagram(table: Table) -> Figure | None:
    from graphcal.plots.ranks import draw_ranks

    if table.ranks is None:
        return None
    found = table.ranks
    named = Ranks(
        tuple(table.preset.title_of(m) for m in found.names),
        found.mean,
        found.critical_difference,
        found.p,
        found.tasks,
    )
    figure, axes = panels(1, 1, 2.5 * HEIGHT)
    draw_ranks(named, axes[0][0])
    title = metric_of(table.preset.metric).title
    axes[0][0].set_title(f"{title}: mean ranks over {found.tasks} rows", fontsize="small")
    return figure
