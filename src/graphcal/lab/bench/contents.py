"""Contents of a table's page: the grid of the paper and one beside it, or a summary over graphs.

A page has one or two tables; everything else is in the CSV files beside it (`graphcal.lab.bench.files`). A preset may ask for a
summary over all its graphs in place of the grid:

    [summary]
    metrics = ["nll", "ece"]            # the columns of the means
    tested = ["nll", "ece"]             # compared by the exact sign-change test over graphs, Holm over the rivals, or nothing
    by = "labels"                       # an axis: NAME-summary.csv has the same for each of its values
    section = [{ title = "...", where = { ... } }]   # parts of the rows; the page has the first one
    together = [["cora", "cora_ml"]]    # graphs that depend on each other: one difference in the test
    means = "Balanced labels"           # the section whose means are shown, where methods have not all rows; the first one
    rule = ["ts", "ms"]                 # rivals of the rule for winning: the page says whether it is met (`_verdict`)
    part = "untouched"                  # graphs that are also compared by themselves: their name ...
    where = { dataset = ["cs"] }        # ... and which they are

Two methods are compared on the runs that both have finished: the preset's own method minus each rival, or, where it has none,
each method minus the reference (``against``). A graph gives one difference, its rows and runs averaged.
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

ALL_GRAPHS = "Over all graphs"


def summary_blocks(table: Table) -> list[Block]:
    """Nothing where the preset asks for no summary or nothing is finished."""
    summary = table.preset.summary
    if not summary or not any(entry.records for row in table.rows for entry in row.entries.values()):
        return []
    metrics = [m for m in summary["metrics"] if m != "label_limit"]  # which run files do not have
    (title, rows), sections = sections_of(table)[0], dict(sections_of(table))
    shown = summary.get("means", title)
    if "rule" in summary:
        return [
            *_verdict(table, rows),
            Heading(2, shown),
            means_of(table, sections[shown], metrics),
            paragraph(
                "Means over the graphs that a method has, percent where a metric is a share. Compare equal numbers of graphs."
            ),
            Heading(2, title),
            *([grid] if (grid := compared_of(table, rows)) else []),
            paragraph(
                f"{_subject(table)}, mean over graphs on the runs both have; graphs in which it is better / worse; p of the "
                f"exact sign-change test over independent graphs, Holm over the methods; ✓ better, ✗ worse at {LEVEL:.0%}."
            ),
            Heading(2, "By section"),
            _by_section(table),
            paragraph(
                f"{_subject(table)}, NLL, in the rows of each section. ✓ and ✗ as above, Holm over the methods of a section."
            ),
        ]
    grids = [grid for grid in (means_of(table, rows, metrics), compared_of(table, rows)) if grid]
    text = "Means: over the graphs that a method has, percent where a metric is a share."
    if len(grids) > 1:
        text += (
            f" Below: {_subject(table)}, mean over graphs on the runs both have; graphs in which it is better / worse; "
            f"p of the exact sign-change test over graphs, Holm over the methods; ✓ better, ✗ worse at {LEVEL:.0%}."
        )
    return [Heading(2, title), *grids, paragraph(text)]


def _subject(table: Table) -> str:
    preset = table.preset
    if preset.main_method:
        return f"{preset.title_of(preset.main_method)} minus the method"
    return f"the method minus {preset.title_of(preset.against)}"


def sections_of(table: Table) -> list[tuple[str, Sequence[Row]]]:
    """Titles and rows of the sections of NAME-summary.csv: all rows, and those of each value of the axis ``by``."""
    by = table.preset.summary.get("by", "")
    values = list(dict.fromkeys(row.axis_values[by] for row in table.rows)) if by else []
    sections: list[tuple[str, Sequence[Row]]] = [(ALL_GRAPHS, table.rows)]
    if "section" in table.preset.summary:
        sections = [
            (s["title"], [row for row in table.rows if matches(s["where"], row.axis_values)])
            for s in table.preset.summary["section"]
        ]
    if len(values) > 1:
        sections += [(f"{by} {value}", [row for row in table.rows if row.axis_values[by] == value]) for value in values]
    return sections


def _by_section(table: Table) -> Grid:
    """Differences by the first metric that is tested: a line per section, a column per method."""
    lines: dict[str, dict[str, str]] = {}
    for title, rows in sections_of(table):
        grid = compared_of(table, rows)
        if grid is not None:
            lines[f"{title} ({max(int(line[1].words) for line in grid.body)})"] = {
                line[0].words: line[2].words for line in grid.body
            }
    methods = [m for m in map(table.preset.title_of, table.methods) if any(m in line for line in lines.values())]
    body = [cells([title, *(line.get(m, "") for m in methods)]) for title, line in lines.items()]
    return Grid(["section (graphs)", *methods], body)


def _verdict(table: Table, rows: Sequence[Row]) -> list[Block]:
    """The rule of a plan, clause by clause: every graph of the part, all graphs, the lowest ECE, no harm.

    Harm: NLL above that of ``against`` by a paired test on the same nodes, Holm over the graphs of a number of labels.
    """
    preset, summary = table.preset, table.preset.summary
    main_method, rivals = preset.main_method, [m for m in summary["rule"] if m in table.methods]
    gaps = {m: _gaps_by_graph(rows, main_method, m, "nll") for m in rivals}
    graphs = [g for g in map(str, preset.axes["dataset"]) if matches(summary["where"], {"dataset": g})]
    lost = [f"{m} on {g} ({gaps[m][g]:+.4f})" for m in rivals for g in graphs if gaps[m].get(g, -1.0) >= 0]
    absent = [f"{m} on {g}" for m in rivals for g in graphs if g not in gaps[m]]
    others = [m for m in table.methods if m != main_method]
    p = dict(zip(others, holm([_chance(_gaps_by_graph(rows, main_method, m, "nll"), summary) for m in others])))
    unclear = [f"{m} (p {p[m]:.3f})" for m in rivals if p[m] > LEVEL or fmean(gaps[m].values()) >= 0]
    kept = [m for m in others if m not in summary.get("apart", ())]
    ece = {m: fmean(d.values()) for m in kept if (d := _gaps_by_graph(rows, main_method, m, "ece"))}
    higher = [f"{preset.title_of(m)} ({number(gap, 'ece', '+')})" for m, gap in ece.items() if gap > 0]
    harmed, tested = [], 0
    for count in dict.fromkeys(row.axis_values.get("fit_labels", 0) for row in table.rows):
        part = [r for r in table.rows if r.axis_values.get("fit_labels", 0) == count]
        to_ts = [(r, e.against["nll"]) for r in part if (e := r.entries.get(main_method)) and "nll" in e.against]
        tested += len(to_ts)
        for (row, gap), chance in zip(to_ts, holm([gap.p for _, gap in to_ts])):
            if gap.value > 0 and chance <= LEVEL:
                harmed.append(f"{' '.join(axis_cells(table, row))} ({gap.value:+.4f}, p {chance:.3f})")
    clauses = [
        (f"NLL below that of every rival on {', '.join(graphs)}", lost, absent),
        (f"NLL below that of every rival over all graphs, p < {LEVEL} after Holm", unclear, []),
        ("lowest mean ECE, by differences on the runs both have", higher, []),
        (f"no harm against {preset.title_of(preset.against)} in {tested} rows", harmed, []),
    ]
    body = [
        cells([text, "no: " + "; ".join(against) if against else "yes", "; ".join(missing) or "nothing"])
        for text, against, missing in clauses
    ]
    return [Heading(2, "The rule of the plan"), Grid(["clause", "met", "not run"], body, range(3))]


def _gaps_by_graph(rows: Sequence[Row], ours: str, theirs: str, metric: str) -> dict[str, float]:
    by_graph = _by_graph(rows, lambda row: _gap(row.entries.get(ours), row.entries.get(theirs), metric))
    return {graph: values[0] for graph, values in by_graph.items()}


def _chance(gaps: Mapping[str, float], summary: Mapping[str, Any]) -> float:
    return over_graphs(_independent(gaps, summary.get("together", ()))) if gaps else 1.0


def means_of(table: Table, rows: Sequence[Row], metrics: Sequence[str]) -> Grid:
    """Mean of each metric over the graphs that a method has."""
    body = []
    for method in table.methods:
        graphs = _by_graph(rows, lambda row, method=method: _own_means(row.entries.get(method), metrics))
        if graphs:
            means = [number(fmean(values), m) for m, values in zip(metrics, zip(*graphs.values()))]
            body.append(cells([table.preset.title_of(method), str(len(graphs)), *means]))
    return Grid(["method", "graphs", *(metric_of(m).heading for m in metrics)], body)


def _own_means(entry: Entry | None, metrics: Sequence[str]) -> list[float] | None:
    return [entry.mean(m) for m in metrics] if entry is not None and entry.records else None


def compared_of(table: Table, rows: Sequence[Row]) -> Grid | None:
    """The preset's own method minus each rival, or each method minus the reference; None where nothing can be compared."""
    summary, main_method = table.preset.summary, table.preset.main_method or table.preset.against
    sign = 1 if table.preset.main_method else -1
    if not summary.get("tested"):
        return None
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
            differences[m][metric] = {graph: sign * values[0] for graph, values in by_graph.items()}
    rivals = [m for m in rivals if differences[m][summary["tested"][0]]]
    if not rivals:
        return None
    title = table.preset.title_of(main_method)
    header, columns = [f"{title} minus" if sign > 0 else f"minus {title}", "graphs"], []
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
    return Grid(header, body)


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


AXIS_TITLES = {"dataset": "graph", "labels_per_class": "labels", "backbone": "backbone"}


def table_blocks(table: Table) -> list[Block]:
    """Everything that is the same on every run: no seconds."""
    notes = Footnotes()
    body = summary_blocks(table) if table.preset.summary else _grid_blocks(table, notes)
    same = ", ".join(f"{axis_title(n)} {v}" for n, v in table.rows[0].axis_values.items() if n not in table.axes)
    about = f"Source: {table.preset.source}. {table.preset.caption}".strip() + (f" Everywhere: {same}." if same else "")
    blocks = [Heading(1, table.preset.title), paragraph(about), *body]
    blocks += (
        [paragraph(f"Not run: {'; '.join(f'{d} ({why})' for d, why in left.items())}.")]
        if (left := _not_run(table))
        else []
    )
    return [*blocks, Notes(notes.lines)] if notes.lines else blocks


def _finished(table: Table) -> list[Row]:
    """Rows with at least one run; the others are named below the table."""
    return [row for row in table.rows if row.runs]


def _not_run(table: Table) -> dict[str, str]:
    """Graphs of the preset that have no run, and why."""
    done = {str(row.axis_values.get("dataset")) for row in _finished(table)}
    graphs = [graph for graph in map(str, table.preset.axes.get("dataset", ())) if graph not in done]
    failed = {
        str(row.axis_values["dataset"]): e.missing
        for row in table.rows
        for e in row.entries.values()
        if "dataset" in row.axis_values
    }
    return {graph: table.preset.reasons.get(graph) or failed.get(graph) or "not run yet" for graph in graphs}


def axis_title(name: str) -> str:
    return AXIS_TITLES.get(name, name)


def axis_cells(table: Table, row: Row) -> list[str]:
    return [str(row.axis_values[name]) for name in table.axes]


def _grid_blocks(table: Table, notes: Footnotes) -> list[Block]:
    metric = table.preset.metric
    header = [*map(axis_title, table.axes), *map(table.preset.title_of, table.methods)]
    body = [
        [*cells(axis_cells(table, row)), *(_cell(row.entries.get(m), metric, notes) for m in table.methods)]
        for row in _finished(table)
    ]
    below = [block for beside in table.preset.beside[:1] for block in _beside_blocks(table, beside)]  # others: NAME.csv
    return [Grid(header, body, range(len(table.axes))), _legend(table), *below]


def _beside_blocks(table: Table, metric: str) -> list[Block]:
    """The same rows by another metric."""
    body = []
    for row in _finished(table):
        line = cells(axis_cells(table, row))
        for m in table.methods:
            entry = row.entries.get(m)
            if entry is None or not entry.records:
                line.append(Text("–" if entry else ""))
            else:
                line.append(Text(entry.plus_minus(metric), entry.styles.get(metric, "")))
        body.append(line)
    header = [*map(axis_title, table.axes), *map(table.preset.title_of, table.methods)]
    return [Heading(2, metric_of(metric).heading), Grid(header, body, range(len(table.axes)))]


def _legend(table: Table) -> Paragraph:
    pieces = [Text(f"{metric_of(table.preset.metric).heading}, mean ± sd over runs.")]
    if any(entry.best or entry.tied for row in table.rows for entry in row.entries.values()):
        same_nodes = ": significantly different from every other method in the row by a paired test on the same nodes "
        pieces += [Text(" "), Text("Bold", "bold"), Text(f"{same_nodes}(Holm, {LEVEL:.0%}; NAME-tests.csv); ")]
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
