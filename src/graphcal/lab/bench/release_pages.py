"""Page, figures and CSV of a preset that serves the next release, all from the lines of NAME-windows.csv.

Means are over backbones and splits, those that most methods have. Leaderboard: ordered by NLL on release t + 1 as saved, methods
with fewer runs last; p is the exact sign-change test of the differences to the leader, one per backbone and split, Holm over the
methods. The splits share a graph: p says how the order depends on splits and backbones, not how it carries over to other graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from graphcal.files import write_atomically
from graphcal.lab.bench.comparisons import over_graphs
from graphcal.lab.bench.document import Block, Drawing, Grid, Heading, cells, markdown, paragraph
from graphcal.lab.bench.files import csv_text, read_lines
from graphcal.lab.bench.releases import NEW_LABELS, served_rows
from graphcal.lab.bench.tabulation import Table
from graphcal.metrics.comparison import holm
from graphcal.plots import svg

COLUMNS = (
    "dataset", "next", "backbone", "method", "split", "window", "labels", "nodes", "accuracy", "confidence", "nll", "brier",
    "ece", "ece_floor", "worst_slice", "decided_5", "error_5", "decided_10", "error_10", "watch", "watch_auc", "watch_labelled",
    "sets", "sets_held", "sets_held_independent",
    "estimated", "estimated_low", "estimated_high",
)  # fmt: skip
KEY = COLUMNS[:7]
Line = Mapping[str, str]
OURS = ("graph-scaling", "graph-scaling-keep")


def lines_of(table: Table) -> list[Line]:
    """The rows of the finished cells, as they are written."""
    return [{c: _text(row.get(c)) for c in COLUMNS} for row in served_rows(table)]


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def with_older(lines: Sequence[Line], file: Path) -> list[Line]:
    """The lines, and those of the file that they do not replace; by method and then as they came."""
    merged = {tuple(line[c] for c in KEY): line for line in [*read_lines(file), *lines]}
    return list(merged.values())


def csv_of(lines: Sequence[Line]) -> str:
    return csv_text(COLUMNS, [[line[c] for c in COLUMNS] for line in lines])


class ServedLines:
    """Lines by method, of the runs that most methods have; values of one window are paired by backbone and split."""

    def __init__(self, lines: Sequence[Line]) -> None:
        runs: dict[str, set[tuple[str, str, str]]] = {}
        for line in lines:
            runs.setdefault(line["method"], set()).add(_run_of(line))
        usual = Counter(map(frozenset, runs.values())).most_common(1)[0][0] if runs else frozenset()
        self.methods = list(runs)
        self.lines = [line for line in lines if _run_of(line) in usual]  # means of other runs cannot be compared
        self.backbones = list(dict.fromkeys(line["backbone"] for line in lines))

    def values(
        self, method: str, window: str, column: str, labels: int = 0, backbone: str = ""
    ) -> dict[tuple[str, str, str], float]:
        """Value of each graph, backbone and split."""
        return {
            _run_of(line): float(line[column])
            for line in self.lines
            if line["method"] == method
            and line["window"] == window
            and line["labels"] == str(labels)
            and line.get(column, "") != ""
            and backbone in ("", line["backbone"])
        }

    def mean(self, *key: Any, **more: Any) -> float | None:
        values = self.values(*key, **more)
        return fmean(values.values()) if values else None

    def kept(self, method: str, window: str, target: int) -> tuple[int, int]:
        """Runs in which at most ``target`` percent of the decided nodes were wrong, and runs that decided any."""
        errors = self.values(method, window, f"error_{target}").values()
        return sum(error <= target / 100 for error in errors), len(errors)

    def statuses(self, method: str, window: str, column: str = "watch") -> list[str]:
        return [
            line[column]
            for line in self.lines
            if line["method"] == method and line["window"] == window and line["labels"] == "0" and line[column]
        ]


def _run_of(line: Line) -> tuple[str, str, str]:
    return line["dataset"], line["backbone"], line["split"]


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f}"


def _nats(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _p_value(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def leaderboard(lines: Sequence[Line]) -> Grid:
    """Methods by NLL on release t + 1 as saved."""
    data = ServedLines(lines)
    runs = {m: len(data.values(m, "all", "nll")) for m in data.methods}
    ranked = sorted(data.methods, key=lambda m: (-runs[m], data.mean(m, "all", "nll") or 9.0))  # unfinished ones last
    best = data.values(ranked[0], "all", "nll")
    gaps = {m: [v - best[k] for k, v in data.values(m, "all", "nll").items() if k in best] for m in ranked[1:]}
    chances = dict(zip(gaps, holm([over_graphs(gap) for gap in gaps.values()])))
    body = []
    for rank, m in enumerate(ranked, 1):
        now, served, floor = (data.mean(m, w, c) for w, c in (("now", "nll"), ("all", "nll"), ("all", "ece_floor")))
        held = [data.kept(m, "all", target) for target in (5, 10)]
        body.append(
            cells([
                str(rank), m, str(runs[m]), _nats(now), _nats(served),
                "" if rank == 1 else f"{fmean(gaps[m]):+.3f}", "" if rank == 1 else _p_value(chances[m]),
                f"{_percent(data.mean(m, 'all', 'ece'))} ({_percent(floor)})", _percent(data.mean(m, "all", "worst_slice")),
                _percent(data.mean(m, "all", "decided_5")), _percent(data.mean(m, "all", "decided_10")),
                ", ".join(f"{k}/{n}" for k, n in held), _nats(data.mean(m, "new", "nll", 500)),
            ])
        )  # fmt: skip
    header = [
        "", "method", "runs", "NLL t", "NLL t+1", "behind", "p", "ECE t+1 (floor) %", "worst slice %", "decided at 5 % error, %",
        "at 10 %", "promise kept", "NLL new, 500 labels",
    ]  # fmt: skip
    return Grid(header, body, (1,))


def survival(lines: Sequence[Line]) -> Grid:
    """NLL and ECE of each window as saved, and on new nodes after refits."""
    data = ServedLines(lines)
    body = []
    for m in data.methods:
        nll = [_nats(data.mean(m, w, "nll")) for w in ("now", "old", "new")]
        ece = [_percent(data.mean(m, w, "ece")) for w in ("now", "old", "new")]
        refit = [_nats(data.mean(m, "new", "nll", k)) for k in NEW_LABELS[1:]]
        refit += [_percent(data.mean(m, "new", "ece", k)) for k in NEW_LABELS[1:]]
        body.append(cells([m, *nll, *ece, *refit]))
    header = [
        "method", "NLL now", "old", "new", "ECE % now", "old", "new", "NLL new, 100 labels", "500", "ECE % new, 100", "500",
    ]  # fmt: skip
    return Grid(header, body)


def promises(lines: Sequence[Line]) -> Grid:
    """Runs that kept the promise of 5 % and 10 % errors, and the share decided."""
    data = ServedLines(lines)
    body = []
    for m in data.methods:
        row = [m]
        for target in (5, 10):
            row += [_percent(data.mean(m, w, f"decided_{target}")) for w in ("now", "new")]
            row += ["/".join(map(str, data.kept(m, w, target))) for w in ("now", "old", "new")]
        body.append(cells(row))
    header = ["method"]
    for target in (5, 10):
        header += [f"decided at {target} %, now %", "new %", "kept now", "old", "new"]
    return Grid(header, body)


def watched(lines: Sequence[Line]) -> Grid:
    """Statuses that `watch` gave each window, over all methods, beside the true change."""
    data = ServedLines(lines)
    body = []
    for window in ("now", "old", "new", "all"):
        statuses = [s for m in data.methods for s in data.statuses(m, window)]
        labelled = [s for m in data.methods for s in data.statuses(m, window, "watch_labelled")]
        change = {
            c: fmean(
                v - now[k]
                for m in data.methods
                for now in [data.values(m, "now", c)]
                for k, v in data.values(m, window, c).items()
            )
            for c in ("accuracy", "nll", "ece")
        }
        broken = [data.kept(m, window, 10) for m in data.methods]
        shares = [
            f"{100 * sum(s == status for s in statuses) / max(1, len(statuses)):.0f}"
            for status in ("still valid", "drifting")
        ]
        drifting = f"{100 * sum(s != 'still valid' for s in labelled) / len(labelled):.0f}" if labelled else ""
        body.append(
            cells([
                window, *shares, drifting, f"{100 * change['accuracy']:+.1f}", f"{change['nll']:+.3f}",
                f"{100 * change['ece']:+.1f}", f"{sum(n - k for k, n in broken)}/{sum(n for _, n in broken)}",
            ])
        )  # fmt: skip
    header = [
        "window", "still valid %", "drifting %", "not valid with 500 labels %", "accuracy, points", "NLL", "ECE, points",
        "10 % promises broken",
    ]  # fmt: skip
    return Grid(header, body)


def counted(lines: Sequence[Line]) -> list[Block]:
    """Counts of errors in communities."""
    data = ServedLines(lines)
    body = []
    for m in data.methods:
        for window in ("now", "all"):
            values = [data.mean(m, window, c) for c in ("sets", "sets_held", "sets_held_independent")]
            if values[0] is not None:
                body.append(cells([m, window, f"{values[0]:.0f}", _percent(values[1]), _percent(values[2])]))
    header = [
        "method",
        "window",
        "communities",
        "95 % intervals that hold the truth, %",
        "the same for independent nodes, %",
    ]
    return [Heading(2, "Counts of errors in communities"), Grid(header, body, (0, 1))] if body else []


def estimated(lines: Sequence[Line]) -> Grid:
    """Accuracy of each window without labels beside the truth."""
    data = ServedLines(lines)
    body = []
    for m in data.methods:
        for window in ("now", "old", "new", "all"):
            truth, low, high, middle, conf = (
                data.values(m, window, c)
                for c in ("accuracy", "estimated_low", "estimated_high", "estimated", "confidence")
            )
            if middle:
                held = sum(low[k] <= truth[k] <= high[k] for k in middle)
                distance, naive = (fmean(abs(v[k] - truth[k]) for k in middle) for v in (middle, conf))
                width = fmean(high[k] - low[k] for k in middle)
                means = [_percent(fmean(v[k] for k in middle)) for v in (truth, middle)]
                counts = [_percent(width), f"{held}/{len(middle)}", _percent(distance), _percent(naive)]
                body.append(cells([m, window, *means, *counts]))
    header = [
        "method", "window", "accuracy %", "estimate %", "width, points", "interval holds", "error, points",
        "mean confidence, error",
    ]  # fmt: skip
    return Grid(header, body, (0, 1))


def blocks(lines: Sequence[Line]) -> list[Block]:
    """The two tables of the page; `promises`, `watched` and `counted` are in the documentation."""
    return [
        Heading(2, "Leaderboard"), leaderboard(lines), Heading(2, "Windows, as saved and after refits"), survival(lines),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------ figures


def figures(lines: Sequence[Line], name: str) -> list[Drawing]:
    """Does calibration survive, which methods age well, what new nodes need."""
    if not lines:
        return []
    drawn = {"survival": _survival_figure, "ageing": _ageing_figure, "new": _new_figure}
    titles = ("Calibration error now and on the next release", "NLL gained by calibration, now and later", "New labels")
    return [
        Drawing(words, f"{name}-{part}.svg", svg(draw(ServedLines(lines))))
        for words, (part, draw) in zip(titles, drawn.items())
    ]


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _ordered(data: ServedLines) -> list[str]:
    return sorted(data.methods, key=lambda m: -(data.mean(m, "all", "nll") or 9.0))


def _survival_figure(data: ServedLines) -> Figure:
    methods = _ordered(data)
    figure, ax = _figure(7, 0.28 * len(methods) + 1.2)
    for window, colour, marker in (("now", "#888888", "o"), ("old", "#1f77b4", "s"), ("new", "#d62728", "D")):
        ax.plot(
            [100 * (data.mean(m, window, "ece") or 0) for m in methods], methods, marker, color=colour, label=window
        )
    for window, colour in (("now", "#888888"), ("new", "#d62728")):
        floor = data.mean(methods[-1], window, "ece_floor")
        ax.axvline(100 * (floor or 0), color=colour, linewidth=0.8, linestyle=":")
    ax.set_xlabel("ECE, percent (dotted: floor of the best method); now: release t, old and new: release t + 1")
    ax.legend(frameon=False)
    ax.grid(axis="x", alpha=0.3)
    return figure


def _ageing_figure(data: ServedLines) -> Figure:
    figure, ax = _figure(7, 6)
    base = {w: data.mean("none", w, "nll") or 0.0 for w in ("now", "all")}
    for m in data.methods:
        x, y = (base[w] - (data.mean(m, w, "nll") or 0.0) for w in ("now", "all"))
        ax.plot(x, y, "o", color="#d62728" if m in OURS else "#1f77b4")
        ax.annotate(m, (x, y), textcoords="offset points", xytext=(4, 3), fontsize=7)
    top = 1.05 * max(*ax.get_xlim(), *ax.get_ylim())
    ax.plot([-0.03, top], [-0.03, top], color="#888888", linewidth=0.8)
    ax.set(xlim=(-0.03, top), ylim=(-0.03, top))  # methods that lose more are not shown
    ax.set_xlabel("NLL below uncalibrated, release t")
    ax.set_ylabel("NLL below uncalibrated, release t + 1, as saved")
    ax.grid(alpha=0.3)
    return figure


def _new_figure(data: ServedLines) -> Figure:
    figure, ax = _figure(7, 4)
    for m in reversed(_ordered(data)):
        y = [data.mean(m, "new", "nll", k) for k in NEW_LABELS]
        if m in (*OURS, "none", "ts", "vs", "dirichlet", "spline", "order-invariant", "simcalib") and None not in y:
            ax.plot(range(len(y)), y, "o-", label=m, linewidth=1.2)
    ax.set_xticks(range(len(NEW_LABELS)), ["as saved", *map(str, NEW_LABELS[1:])])
    ax.set_xlabel("labels of new nodes in the refit")
    ax.set_ylabel("NLL on new nodes")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    ax.grid(axis="y", alpha=0.3)
    return figure


# -------------------------------------------------------------------------------------------------------------- publication


def publish_releases(table: Table, made: Sequence[Block], folder: Path) -> list[Path]:
    """Write NAME.md, NAME-windows.csv and the figures; lines of other methods and runs that stand there stay."""
    name = table.preset.name
    lines = with_older(lines_of(table), folder / f"{name}-windows.csv")
    drawn = figures(lines, name)
    page = [
        Heading(1, table.preset.title), paragraph(table.preset.caption), *drawn, *blocks(lines),
        Heading(2, "How it was made"), *made,
    ]  # fmt: skip
    texts = {
        f"{name}.md": markdown(page),
        f"{name}-windows.csv": csv_of(lines),
        **{figure.file: figure.svg for figure in drawn},
    }
    return [write_atomically(folder / file, text) for file, text in texts.items()]
