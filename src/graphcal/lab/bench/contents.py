"""What a table says: the grid of the paper or a list of methods for each row, mean ranks, notes; and the seconds, apart."""

from __future__ import annotations

from graphcal.lab.bench.comparisons import LEVEL
from graphcal.lab.bench.document import Block, Footnotes, Grid, Heading, Notes, Paragraph, Text, cells, paragraph
from graphcal.lab.bench.equivalence import MARGIN
from graphcal.lab.bench.graph_summary import summary_blocks
from graphcal.lab.bench.method_list import list_blocks
from graphcal.lab.bench.tabulation import Entry, Row, Table
from graphcal.metrics.names import metric_of

AXIS_TITLES = {"dataset": "graph", "labels_per_class": "labels", "backbone": "backbone"}
PARTS = ("train", "search", "fit", "apply")


def table_blocks(table: Table) -> list[Block]:
    """Everything that is the same on every run: no seconds."""
    notes = Footnotes()
    body = list_blocks(table, notes) if table.preset.kind == "list" else _grid_blocks(table, notes)
    same = ", ".join(f"{axis_title(n)} {v}" for n, v in table.rows[0].place.items() if n not in table.axes)
    about = f"Source: {table.preset.source}. {table.preset.caption}".strip() + (f" Everywhere: {same}." if same else "")
    blocks = [Heading(1, table.preset.title), paragraph(about), *summary_blocks(table), *body, *_rank_blocks(table)]
    return [*blocks, Notes(notes.lines)] if notes.lines else blocks


def axis_title(name: str) -> str:
    return AXIS_TITLES.get(name, name)


def axis_cells(table: Table, row: Row) -> list[str]:
    return [str(row.place[name]) for name in table.axes]


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
    pieces = [Text("Mean ± sd over runs.")]
    if table.preset.kind == "table":
        same_nodes = ": a paired test on the same nodes tells it apart from every other method in the row "
        pieces += [Text(" "), Text("Bold", "bold"), Text(f"{same_nodes}(Holm over all pairs, {LEVEL:.0%}); ")]
        pieces += [Text("italic", "italic"), Text(": not told apart from the row's best.")]
    if table.preset.metric == "ece":
        floor = "the ECE expected of a perfectly calibrated model on these nodes"
        pieces.append(Text(f" floor: {floor}; excess: what is above it."))
    if any(entry.published for row in table.rows for entry in row.entries.values()):
        differs = "Welch's test tells the two means apart (5%, as many runs on both sides)"
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


def _rank_blocks(table: Table) -> list[Block]:
    ranks = table.ranks
    if ranks is None:
        return []
    body = [cells([table.preset.title_of(m), f"{mean:.2f}"]) for m, mean in zip(ranks.names, ranks.mean)]
    text = (
        f"Over {ranks.tasks} graphs, the rows of each averaged; two methods whose mean ranks differ by less than the "
        f"critical difference {ranks.critical_difference:.2f} (Nemenyi, {LEVEL:.0%}) are not told apart. "
        f"Friedman: p = {ranks.p:.2g}."
    )
    return [Heading(2, "Mean ranks"), Grid(["method", "mean rank"], body), paragraph(text)]


def seconds_blocks(table: Table, level: int = 1) -> list[Block]:
    """How long the cells took, on one core: different on every run, so in a document of its own."""
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
