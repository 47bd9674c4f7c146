"""A table as Markdown: the grid of the paper, a list of methods for each row, and the seconds apart from both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphcal.bench.comparisons import LEVEL
from graphcal.bench.tables import Entry, Row, Table
from graphcal.metrics.names import metric_of
from graphcal.metrics.ranks import Ranks

AXIS_TITLES = {"dataset": "graph", "labels_per_class": "labels", "backbone": "backbone"}
PARTS = ("train", "search", "fit", "apply")


def markdown(table: Table) -> str:
    """Everything that is the same on every run: no seconds."""
    from graphcal.bench.lists import list_lines

    body = list_lines(table) if table.preset.kind == "list" else _grid(table)
    same = ", ".join(f"{AXIS_TITLES.get(n, n)} {v}" for n, v in table.rows[0].facts.items() if n not in table.axes)
    about = f"Source: {table.preset.source}. {table.preset.caption}".strip() + (f" Everywhere: {same}." if same else "")
    head = [f"# {table.preset.title}", "", about, ""]
    return "\n".join([*head, *body]) + "\n"


def lines_of(header: Sequence[str], body: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """A Markdown table; the first ``left`` columns are text."""
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    return ["| " + " | ".join(cells) + " |" for cells in (header, rule, *body)]


def number(value: float, metric: str) -> str:
    return f"{value:.2f}" if metric_of(metric).unit == "percent" else f"{value:.4f}"


def plus_minus(entry: Entry, metric: str, where: str = "test") -> str:
    return f"{number(entry.mean(metric, where), metric)} ± {number(entry.sd(metric, where), metric)}"


def axis_cells(table: Table, row: Row) -> list[str]:
    return [str(row.facts[name]) for name in table.axes]


class Footnotes:
    """Notes in the order in which they are first referred to."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def mark(self, texts: Iterable[str]) -> str:
        numbers = []
        for text in texts:
            if text not in self.notes:
                self.notes.append(text)
            numbers.append(str(self.notes.index(text) + 1))
        return f"<sup>{','.join(numbers)}</sup>" if numbers else ""

    def lines(self) -> list[str]:
        return ["", *(f"{n}. {text}" for n, text in enumerate(self.notes, 1))] if self.notes else []


# ------------------------------------------------------------------------------------------------------------------- grid


def _grid(table: Table) -> list[str]:
    metric, notes = table.preset.metric, Footnotes()
    header = [AXIS_TITLES.get(name, name) for name in table.axes] + [table.preset.title_of(m) for m in table.methods]
    body = [
        axis_cells(table, row) + [_cell(row.entries.get(m), metric, notes) for m in table.methods] for row in table.rows
    ]
    lines = lines_of(header, body, len(table.axes))
    legend = ["Mean ± sd over runs."]
    if table.preset.kind == "table":
        legend.append(
            "**Bold**: a paired test on the same nodes tells it apart from every other method in the row "
            f"(Holm, {LEVEL:.0%}); *italic*: not told apart from the row's best."
        )
    if metric == "ece":
        legend.append(
            "floor: the ECE expected of a perfectly calibrated model on these nodes; excess: what is above it."
        )
    if any(entry.published for row in table.rows for entry in row.entries.values()):
        legend.append("paper: the published value; ≠: further from it than both standard deviations together.")
    return [*lines, "", " ".join(legend), *rank_lines(table, table.ranks), *notes.lines()]


def _cell(entry: Entry | None, metric: str, notes: Footnotes) -> str:
    if entry is None:
        return ""
    paper = f"paper {entry.published[0]:.2f} ± {entry.published[1]:.2f}" if entry.published else ""
    if not entry.records:
        small = f"<br><sub>{paper}</sub>" if paper else ""
        return f"–{notes.mark([entry.missing, *entry.remarks])}{small}"
    main = plus_minus(entry, metric)
    main = f"**{main}**" if entry.best else f"*{main}*" if entry.tied else main
    parts = []
    if metric == "ece":
        parts.append(f"floor {entry.mean('ece_floor'):.2f}, excess {entry.mean('ece_excess'):.2f}")
    if paper:
        parts.append(paper + (" ≠" if entry.differs(metric) else ""))
    small = f"<br><sub>{'<br>'.join(parts)}</sub>" if parts else ""
    return f"{main}{notes.mark(entry.remarks)}{small}"


def rank_lines(table: Table, ranks: Ranks | None) -> list[str]:
    if ranks is None:
        return []
    body = [[table.preset.title_of(m), f"{mean:.2f}"] for m, mean in zip(ranks.names, ranks.mean)]
    text = (
        f"Over {ranks.tasks} complete rows; two methods whose mean ranks differ by less than the critical difference "
        f"{ranks.critical_difference:.2f} (Nemenyi, {LEVEL:.0%}) are not told apart. Friedman: p = {ranks.p:.2g}. "
        "Rows of the same graph are not independent, so read this as generous."
    )
    return ["", "## Mean ranks", "", *lines_of(["method", "mean rank"], body), "", text]


# ---------------------------------------------------------------------------------------------------------------- seconds


def seconds_markdown(table: Table) -> str:
    """How long the cells took, on one core: different on every run, so in a file of its own."""
    header = [*(AXIS_TITLES.get(n, n) for n in table.axes), "method", *PARTS]
    body = [
        [*axis_cells(table, row), table.preset.title_of(m), *(f"{entry.seconds(part):.4f}" for part in PARTS)]
        for row in table.rows
        for m, entry in row.entries.items()
        if entry.records
    ]
    text = "Mean seconds of one core for one run. train: one model of those trained together; search: what was tried, not kept."
    return (
        "\n".join([f"# {table.preset.title}: seconds", "", text, "", *lines_of(header, body, len(table.axes) + 1)])
        + "\n"
    )
