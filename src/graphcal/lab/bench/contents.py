"""Contents of a table's page: the grid of the paper or a list of methods for each row, summary over graphs, seconds.

A preset may ask for a summary over all its graphs:

    [summary]
    metrics = ["nll", "ece"]            # the columns of the means
    tested = ["nll", "ece"]             # compared by the exact sign-change test over graphs, Holm over the rivals
    by = "labels"                       # an axis: one pair of tables for each of its values, and one for all
    section = [{ title = "...", where = { ... } }]   # in place of ``by``: the rows of each pair of tables
    together = [["cora", "cora_ml"]]    # graphs that depend on each other: one difference in the test
    part = "untouched"                  # graphs that are also compared by themselves: their name ...
    where = { dataset = ["cs"] }        # ... and which they are

Two methods are compared on the runs that both have finished. A graph gives one difference, its rows and runs averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from graphcal.lab.bench.comparisons import LEVEL, MARGIN, over_graphs
from graphcal.lab.bench.document import Block, Footnotes, Grid, Heading, Notes, Paragraph, Text, cells, paragraph
from graphcal.lab.bench.presets import matches
from graphcal.lab.bench.tabulation import Entry, Row, Table, number
from graphcal.metrics.comparison import holm
from graphcal.metrics.names import metric_of


def summary_blocks(table: Table) -> list[Block]:
    """Nothing where the preset asks for no summary or nothing is finished."""
    summary = table.preset.summary
    if not summary or not any(entry.records for row in table.rows for entry in row.entries.values()):
        return []
    by = summary.get("by", "")
    values = list(dict.fromkeys(row.axis_values[by] for row in table.rows)) if by else []
    sections: list[tuple[str, Sequence[Row]]] = [("Over all graphs", table.rows)]
    if "section" in summary:
        sections = [
            (s["title"], [row for row in table.rows if matches(s["where"], row.axis_values)])
            for s in summary["section"]
        ]
    if len(values) > 1:
        sections += [(f"{by} {value}", [row for row in table.rows if row.axis_values[by] == value]) for value in values]
    blocks: list[Block] = []
    for title, rows in sections:
        blocks += [Heading(2, title), _means(table, rows), *_compared(table, rows)]
    main_method = table.preset.title_of(table.preset.main_method)
    text = (
        "Means: over the graphs that a method has, percent where a metric is a share. Below each: "
        f"{main_method} minus the method, mean over graphs on the runs both have; graphs in which it is better / worse; "
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
    summary, main_method = table.preset.summary, table.preset.main_method
    part: Mapping[str, Any] = summary.get("where", {})
    rivals = [m for m in table.methods if m != main_method]
    differences: dict[str, dict[str, dict[str, float]]] = {
        m: {} for m in rivals
    }  # rival -> metric -> graph -> difference
    for m in rivals:
        for metric in summary["tested"]:
            by_graph = _by_graph(
                rows, lambda row, m=m, metric=metric: _gap(row.entries.get(main_method), row.entries.get(m), metric)
            )
            differences[m][metric] = {graph: values[0] for graph, values in by_graph.items()}
    rivals = [m for m in rivals if differences[m][summary["tested"][0]]]
    if not rivals:
        return []
    header, columns = [f"{table.preset.title_of(main_method)} minus", "graphs"], []
    for metric in summary["tested"]:
        cost = metric_of(metric).cost
        p = holm([over_graphs(_independent(differences[m][metric], summary.get("together", ()))) for m in rivals])
        header += [metric_of(metric).title, "better / worse", "p"]
        column = []
        for m, chance in zip(rivals, p):
            gaps = differences[m][metric]
            mean = fmean(gaps.values())
            mark = "" if chance > LEVEL else " ✓" if cost(mean) < 0 else " ✗"
            column.append([number(mean, metric, "+") + mark, _counts(gaps, metric), f"{chance:.3f}"])
        columns.append(column)
        if part:
            header += [f"{metric_of(metric).title}, {summary['part']}", "better / worse"]
            inside = [
                {g: v for g, v in differences[m][metric].items() if matches(part, {"dataset": g})} for m in rivals
            ]
            columns.append(
                [[number(fmean(g.values()), metric, "+"), _counts(g, metric)] if g else ["", ""] for g in inside]
            )
    body = [
        cells(
            [
                table.preset.title_of(m),
                str(len(differences[m][summary["tested"][0]])),
                *(w for column in columns for w in column[k]),
            ]
        )
        for k, m in enumerate(rivals)
    ]
    return [Grid(header, body)]


def _independent(gaps: Mapping[str, float], together: Sequence[Sequence[str]]) -> list[float]:
    """One difference for each graph, and one for the graphs of a group that depend on each other: their mean."""
    group_of = {graph: group[0] for group in together for graph in group}
    units: dict[str, list[float]] = {}
    for graph, gap in gaps.items():
        units.setdefault(group_of.get(graph, graph), []).append(gap)
    return [fmean(values) for values in units.values()]


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
            graphs.setdefault(str(row.axis_values["dataset"]), []).append(values)
    return {graph: [fmean(column) for column in zip(*lines)] for graph, lines in graphs.items()}


HEADER = ["method", "accuracy", "ECE", "floor", "excess", "NLL", "Brier", "ECE all", "floor all", "NLL all", "changed"]
OVER_GRAPHS = (("ece_excess", "test"), ("nll", "test"), ("ece_excess", "unlabelled"), ("nll", "unlabelled"))


def list_blocks(table: Table, notes: Footnotes) -> list[Block]:
    reference = table.preset.against
    header = HEADER
    if reference:
        header = [*header, *(f"{metric} − {table.preset.title_of(reference)}" for metric in ("ECE", "NLL"))]
    blocks: list[Block] = []
    for row in table.rows:
        body = [
            [Text(table.preset.title_of(m), "", notes.refer(e.remarks)), *_values(e, notes, bool(reference))]
            for m, e in row.entries.items()
        ]
        blocks += [Heading(2, ", ".join(str(value) for value in row.axis_values.values())), Grid(header, body)]
    legend = (
        "Mean ± sd over runs, test nodes of the protocol; 'all': every node outside training and validation. "
        "Accuracy, ECE, floor and excess in percent. 'changed': test predictions that calibration changed."
    )
    if reference:
        legend += " Differences: paired test on the same nodes, Holm over the methods of the row; "
        legend += f"✓ better, ✗ worse at {LEVEL:.0%}."
    return [*blocks, paragraph(legend), *_over_all_rows(table), *_over_graphs(table)]


def _values(entry: Entry, notes: Footnotes, compared: bool) -> list[Text]:
    if not entry.records:
        return [Text("–", "", notes.refer([entry.missing])), *cells([""] * (11 if compared else 9))]
    changed = sum(int(record.result["changed"]) for record in entry.records) / len(entry.records)
    values = [
        entry.plus_minus("accuracy"),
        entry.plus_minus("ece"),
        number(entry.mean("ece_floor"), "ece"),
        number(entry.mean("ece_excess"), "ece"),
        entry.plus_minus("nll"),
        number(entry.mean("brier"), "brier"),
        number(entry.mean("ece", "unlabelled"), "ece"),
        number(entry.mean("ece_floor", "unlabelled"), "ece"),
        number(entry.mean("nll", "unlabelled"), "nll"),
        f"{changed:.1f}",
    ]
    return cells([*values, *(_difference(entry, metric) for metric in ("ece", "nll"))] if compared else values)


def _difference(entry: Entry, metric: str) -> str:
    if metric not in entry.against:
        return ""
    gap = entry.against[metric]
    mark = "" if not gap.real else _mark(gap.value)
    return metric_of(metric).text(gap.value, sign=True) + mark


def _mark(difference: float) -> str:
    return " ✓" if difference < 0 else " ✗"


def _over_all_rows(table: Table) -> list[Block]:
    """Every method over all rows in which it and the reference are complete."""
    reference = table.preset.against
    if not reference or len(table.rows) < 2:
        return []
    body = []
    for m in table.methods:
        pairs = [(r.entries[m], r.entries[reference]) for r in table.rows if m in r.entries and reference in r.entries]
        pairs = [(a, b) for a, b in pairs if a.records and b.records]
        if not pairs:
            continue
        line = [table.preset.title_of(m), str(len(pairs))]
        for metric, tested in (("ece_excess", "ece"), ("nll", "nll")):
            mean = sum(a.mean(metric) for a, _ in pairs) / len(pairs)
            gap = sum(a.mean(metric) - b.mean(metric) for a, b in pairs) / len(pairs)
            real = [a.against[tested].value for a, _ in pairs if tested in a.against and a.against[tested].real]
            won, lost = sum(value < 0 for value in real), sum(value > 0 for value in real)
            line += [number(mean, metric), number(gap, metric, "+"), f"{won} / {lost}"]
        body.append(cells(line))
    name = table.preset.title_of(reference)
    header = ["method", "rows", "mean excess", f"− {name}", "better / worse", "mean NLL", f"− {name}", "better / worse"]
    text = (
        "Means over the rows a method has; 'better / worse': rows in which the paired test tells it from the reference."
    )
    return [Heading(2, "Over all rows"), Grid(header, body), paragraph(text)]


def _over_graphs(table: Table) -> list[Block]:
    """The preset's own method against its rivals, over all graphs that both have."""
    main_method = table.preset.main_method
    gaps = {
        m: [_gaps_by_graph(table, main_method, m, *measure) for measure in OVER_GRAPHS]
        for m in table.preset.rivals
        if m in table.methods
    }
    gaps = {m: measures for m, measures in gaps.items() if len(measures[0]) > 1}
    if not gaps:
        return []
    p = [holm([over_graphs(measures[k]) for measures in gaps.values()]) for k in range(len(OVER_GRAPHS))]
    body = []
    for index, (m, measures) in enumerate(gaps.items()):
        line = [table.preset.title_of(m), str(len(measures[0]))]
        for k, (metric, _) in enumerate(OVER_GRAPHS):
            mean, chance = sum(measures[k]) / len(measures[k]), p[k][index]
            mark = "" if chance > LEVEL else _mark(mean)
            line += [number(mean, metric, "+") + mark, f"{chance:.3f}"]
        body.append(cells(line))
    title = table.preset.title_of(main_method)
    header = ["minus", "graphs", "excess", "p", "NLL", "p", "excess all", "p", "NLL all", "p"]
    text = (
        f"{title} minus each rival, mean over graphs (the rows of one graph are averaged first: they share test nodes). "
        f"p: exact sign-change test over graphs, Holm over the rivals; ✓ better, ✗ worse at {LEVEL:.0%}."
    )
    return [Heading(2, f"{title} against its rivals, over graphs"), Grid(header, body), paragraph(text)]


def _gaps_by_graph(table: Table, a: str, b: str, metric: str, where: str) -> list[float]:
    """a minus b, one value per graph."""
    graphs: dict[str, list[float]] = {}
    for row in table.rows:
        ours, theirs = row.entries.get(a), row.entries.get(b)
        if ours is not None and theirs is not None and ours.records and theirs.records:
            gap = ours.mean(metric, where) - theirs.mean(metric, where)
            graphs.setdefault(str(row.axis_values["dataset"]), []).append(gap)
    return [sum(gaps) / len(gaps) for gaps in graphs.values()]


AXIS_TITLES = {"dataset": "graph", "labels_per_class": "labels", "backbone": "backbone"}
PARTS = ("train", "search", "fit", "apply")


def table_blocks(table: Table) -> list[Block]:
    """Everything that is the same on every run: no seconds."""
    notes = Footnotes()
    body = list_blocks(table, notes) if table.preset.kind == "list" else _grid_blocks(table, notes)
    same = ", ".join(f"{axis_title(n)} {v}" for n, v in table.rows[0].axis_values.items() if n not in table.axes)
    about = f"Source: {table.preset.source}. {table.preset.caption}".strip() + (f" Everywhere: {same}." if same else "")
    blocks = [Heading(1, table.preset.title), paragraph(about), *summary_blocks(table), *body]
    return [*blocks, Notes(notes.lines)] if notes.lines else blocks


def axis_title(name: str) -> str:
    return AXIS_TITLES.get(name, name)


def axis_cells(table: Table, row: Row) -> list[str]:
    return [str(row.axis_values[name]) for name in table.axes]


def _grid_blocks(table: Table, notes: Footnotes) -> list[Block]:
    metric = table.preset.metric
    header = [*map(axis_title, table.axes), *map(table.preset.title_of, table.methods)]
    body = [
        [*cells(axis_cells(table, row)), *(_cell(row.entries.get(m), metric, notes) for m in table.methods)]
        for row in table.rows
    ]
    below = [block for beside in table.preset.beside for block in _beside_blocks(table, beside)]
    return [Grid(header, body, range(len(table.axes))), _legend(table), *below]


def _beside_blocks(table: Table, metric: str) -> list[Block]:
    """The same rows by another metric; ``all_``: on every node outside training and validation, which no test was made on."""
    where, name = ("unlabelled", metric.removeprefix("all_")) if metric.startswith("all_") else ("test", metric)
    title = metric_of(name).heading + (" on all unlabelled nodes" if where == "unlabelled" else "")
    body = []
    for row in table.rows:
        line = cells(axis_cells(table, row))
        for m in table.methods:
            entry = row.entries.get(m)
            if entry is None or not entry.records:
                line.append(Text("–" if entry else ""))
                continue
            floor = (f"floor {entry.mean('ece_floor', where):.2f}",) if name == "ece" else ()
            line.append(Text(entry.plus_minus(name, where), entry.styles.get(metric, ""), (), floor))
        body.append(line)
    header = [*map(axis_title, table.axes), *map(table.preset.title_of, table.methods)]
    blocks: list[Block] = [Heading(2, title), Grid(header, body, range(len(table.axes)))]
    unmarked = paragraph("No marks: predictions are kept for the test nodes only, so there is no test on nodes here.")
    return [*blocks, unmarked] if where == "unlabelled" else blocks


def _legend(table: Table) -> Paragraph:
    pieces = [Text(f"{metric_of(table.preset.metric).heading}, mean ± sd over runs.")]
    if table.preset.kind == "table":
        same_nodes = ": significantly different from every other method in the row by a paired test on the same nodes "
        pieces += [Text(" "), Text("Bold", "bold"), Text(f"{same_nodes}(Holm over all pairs, {LEVEL:.0%}); ")]
        pieces += [Text("italic", "italic"), Text(": not significantly different from the row's best.")]
    if table.preset.metric == "ece":
        floor = "the ECE expected of a perfectly calibrated model on these nodes"
        pieces.append(Text(f" floor: {floor}; excess: what is above it."))
    if any(entry.published for row in table.rows for entry in row.entries.values()):
        differs = "the two means differ by Welch's test (5%, as many runs on both sides)"
        pieces.append(Text(f" paper: the published value; ≠: {differs}. {agreement_words(table)}".rstrip()))
    return Paragraph(tuple(pieces))


def agreement_words(table: Table) -> str:
    """The count of agreement with the published values, cell by cell; empty where nothing can be compared."""
    count = table.agreement
    if not count:
        return ""
    return (
        f"Cells with a published value: {count.total()}; equivalent to it (two one-sided tests, within {MARGIN:g} point, "
        f"{LEVEL:.0%}): {count['equivalent']}; different (≠, not equivalent): {count['differs']}; open: {count['open']}."
    )


def _cell(entry: Entry | None, metric: str, notes: Footnotes) -> Text:
    if entry is None:
        return Text("")
    paper = f"paper {entry.published[0]:.2f} ± {entry.published[1]:.2f}" if entry.published else ""
    if not entry.records:
        return Text("–", "", notes.refer([entry.missing, *entry.remarks]), (paper,) if paper else ())
    small = []
    if metric == "ece":
        small.append(f"floor {entry.mean('ece_floor'):.2f}, excess {entry.mean('ece_excess'):.2f}")
    if paper:
        small.append(paper + (" ≠" if entry.differs(metric) else ""))
    style = "bold" if entry.best else "italic" if entry.tied else ""
    return Text(entry.plus_minus(metric), style, notes.refer(entry.remarks), tuple(small))


def seconds_blocks(table: Table, level: int = 1) -> list[Block]:
    """Seconds of the cells on one core; a separate document, because they differ on every run."""
    header = [*map(axis_title, table.axes), "method", *PARTS]
    body = [
        cells([*axis_cells(table, row), table.preset.title_of(m), *(f"{entry.seconds(part):.4f}" for part in PARTS)])
        for row in table.rows
        for m, entry in row.entries.items()
        if entry.records and entry.records[0].seconds  # a row from before may have come without its seconds
    ]
    text = "Mean seconds of one core for one run. train: one model of those trained together; search: what was tried, not kept."
    title = Heading(level, f"{table.preset.title}: seconds")
    return [title, paragraph(text), Grid(header, body, range(len(table.axes) + 1))]
