"""What a list of methods shows over all its graphs: means, and the preset's own method against every other.

    [summary]
    metrics = ["nll", "ece"]            # the columns of the means
    tested = ["nll", "ece"]             # compared by the exact sign-change test over graphs, Holm over the rivals
    by = "labels"                       # an axis: one pair of tables for each of its values, and one for all
    part = "untouched"                  # graphs that are also compared by themselves: their name ...
    where = { dataset = ["cs"] }        # ... and which they are

Two methods are compared on the runs that both have finished. A graph gives one difference, its rows and runs averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from graphcal.lab.bench.comparisons import LEVEL, over_graphs
from graphcal.lab.bench.document import Block, Grid, Heading, cells, paragraph
from graphcal.lab.bench.presets import matches
from graphcal.lab.bench.tabulation import Entry, Row, Table, number
from graphcal.metrics.comparison import holm
from graphcal.metrics.names import metric_of


def summary_blocks(table: Table) -> list[Block]:
    """Nothing where the preset asks for no summary or nothing is finished."""
    asked = table.preset.summary
    if not asked or not any(entry.records for row in table.rows for entry in row.entries.values()):
        return []
    by = asked.get("by", "")
    values = list(dict.fromkeys(row.place[by] for row in table.rows)) if by else []
    sections: list[tuple[str, Sequence[Row]]] = [("Over all graphs", table.rows)]
    if len(values) > 1:
        sections += [(f"{by} {value}", [row for row in table.rows if row.place[by] == value]) for value in values]
    blocks: list[Block] = []
    for title, rows in sections:
        blocks += [Heading(2, title), _means(table, rows), *_compared(table, rows)]
    own = table.preset.title_of(table.preset.own)
    text = (
        "Means: over the graphs that a method has, percent where a metric is a share. Below each: "
        f"{own} minus the method, mean over graphs on the runs both have; graphs in which it is better / worse; "
        f"p of the exact sign-change test over graphs, Holm over the methods; ✓ better, ✗ worse at {LEVEL:.0%}."
    )
    return [*blocks, paragraph(text)]


def _means(table: Table, rows: Sequence[Row]) -> Grid:
    metrics = table.preset.summary["metrics"]
    body = []
    for method in table.methods:
        graphs = _by_graph(rows, lambda row, method=method: _own_means(row.entries.get(method), metrics))
        if graphs:
            means = [number(fmean(values), m) for m, values in zip(metrics, zip(*graphs.values()))]
            body.append(cells([table.preset.title_of(method), str(len(graphs)), *means]))
    return Grid(["method", "graphs", *(metric_of(m).heading for m in metrics)], body)


def _own_means(entry: Entry | None, metrics: Sequence[str]) -> list[float] | None:
    return [entry.mean(m) for m in metrics] if entry is not None and entry.records else None


def _compared(table: Table, rows: Sequence[Row]) -> list[Block]:
    asked, own = table.preset.summary, table.preset.own
    part: Mapping[str, Any] = asked.get("where", {})
    rivals = [m for m in table.methods if m != own]
    found: dict[str, dict[str, dict[str, float]]] = {m: {} for m in rivals}  # rival -> metric -> graph -> difference
    for m in rivals:
        for metric in asked["tested"]:
            by_graph = _by_graph(
                rows, lambda row, m=m, metric=metric: _gap(row.entries.get(own), row.entries.get(m), metric)
            )
            found[m][metric] = {graph: values[0] for graph, values in by_graph.items()}
    rivals = [m for m in rivals if found[m][asked["tested"][0]]]
    if not rivals:
        return []
    header, columns = [f"{table.preset.title_of(own)} minus", "graphs"], []
    for metric in asked["tested"]:
        cost = metric_of(metric).cost
        p = holm([over_graphs(list(found[m][metric].values())) for m in rivals])
        header += [metric_of(metric).title, "better / worse", "p"]
        column = []
        for m, chance in zip(rivals, p):
            gaps = found[m][metric]
            mean = fmean(gaps.values())
            mark = "" if chance > LEVEL else " ✓" if cost(mean) < 0 else " ✗"
            column.append([number(mean, metric, "+") + mark, _counts(gaps, metric), f"{chance:.3f}"])
        columns.append(column)
        if part:
            header += [f"{metric_of(metric).title}, {asked['part']}", "better / worse"]
            inside = [{g: v for g, v in found[m][metric].items() if matches(part, {"dataset": g})} for m in rivals]
            columns.append(
                [[number(fmean(g.values()), metric, "+"), _counts(g, metric)] if g else ["", ""] for g in inside]
            )
    body = [
        cells(
            [
                table.preset.title_of(m),
                str(len(found[m][asked["tested"][0]])),
                *(w for column in columns for w in column[k]),
            ]
        )
        for k, m in enumerate(rivals)
    ]
    return [Grid(header, body)]


def _counts(gaps: Mapping[str, float], metric: str) -> str:
    costs = [metric_of(metric).cost(gap) for gap in gaps.values()]
    return f"{sum(c < 0 for c in costs)} / {sum(c > 0 for c in costs)}"


def _gap(ours: Entry | None, theirs: Entry | None, metric: str) -> list[float] | None:
    both = ours.minus(theirs, metric) if ours is not None and theirs is not None else []
    return [fmean(both)] if both else None


def _by_graph(rows: Sequence[Row], of: Any) -> dict[str, list[float]]:
    """The values of each graph, its rows averaged."""
    graphs: dict[str, list[list[float]]] = {}
    for row in rows:
        values = of(row)
        if values is not None:
            graphs.setdefault(str(row.place["dataset"]), []).append(values)
    return {graph: [fmean(column) for column in zip(*lines)] for graph, lines in graphs.items()}
