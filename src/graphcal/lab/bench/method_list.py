"""A list of methods for each row of a table, with several metrics side by side, and what holds over all rows."""

from __future__ import annotations

from graphcal.lab.bench.comparisons import LEVEL, over_graphs
from graphcal.lab.bench.document import Block, Footnotes, Grid, Heading, Text, cells, paragraph
from graphcal.lab.bench.tabulation import Entry, Table, number
from graphcal.metrics.comparison import holm
from graphcal.metrics.names import metric_of

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
        blocks += [Heading(2, ", ".join(str(value) for value in row.place.values())), Grid(header, body)]
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
    own = table.preset.own
    gaps = {
        m: [_by_graph(table, own, m, *measure) for measure in OVER_GRAPHS]
        for m in table.preset.rivals
        if m in table.methods
    }
    gaps = {m: measures for m, measures in gaps.items() if len(measures[0]) > 1}
    if not gaps:
        return []
    p = [holm([over_graphs(measures[k]) for measures in gaps.values()]) for k in range(len(OVER_GRAPHS))]
    body = []
    for place, (m, measures) in enumerate(gaps.items()):
        line = [table.preset.title_of(m), str(len(measures[0]))]
        for k, (metric, _) in enumerate(OVER_GRAPHS):
            mean, chance = sum(measures[k]) / len(measures[k]), p[k][place]
            mark = "" if chance > LEVEL else _mark(mean)
            line += [number(mean, metric, "+") + mark, f"{chance:.3f}"]
        body.append(cells(line))
    title = table.preset.title_of(own)
    header = ["minus", "graphs", "excess", "p", "NLL", "p", "excess all", "p", "NLL all", "p"]
    text = (
        f"{title} minus each rival, mean over graphs (the rows of one graph are averaged first: they share test nodes). "
        f"p: exact sign-change test over graphs, Holm over the rivals; ✓ better, ✗ worse at {LEVEL:.0%}."
    )
    return [Heading(2, f"{title} against its rivals, over graphs"), Grid(header, body), paragraph(text)]


def _by_graph(table: Table, a: str, b: str, metric: str, where: str) -> list[float]:
    """a minus b, one value per graph."""
    graphs: dict[str, list[float]] = {}
    for row in table.rows:
        ours, theirs = row.entries.get(a), row.entries.get(b)
        if ours is not None and theirs is not None and ours.records and theirs.records:
            gap = ours.mean(metric, where) - theirs.mean(metric, where)
            graphs.setdefault(str(row.place["dataset"]), []).append(gap)
    return [sum(gaps) / len(gaps) for gaps in graphs.values()]
