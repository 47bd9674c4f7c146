"""A list of methods for each row of a table, with several metrics side by side, and what holds over all rows."""

from __future__ import annotations

from graphcal.bench.comparisons import LEVEL, over_graphs
from graphcal.bench.markdown import Footnotes, lines_of, number, plus_minus, rank_lines
from graphcal.bench.tables import Entry, Table
from graphcal.metrics.comparison import holm
from graphcal.metrics.names import metric_of


def list_lines(table: Table) -> list[str]:
    notes, lines, reference = Footnotes(), [], table.preset.against
    header = [
        "method",
        "accuracy",
        "ECE",
        "floor",
        "excess",
        "NLL",
        "Brier",
        "ECE all",
        "floor all",
        "NLL all",
        "changed",
    ]
    if reference:
        header += [f"ECE − {table.preset.title_of(reference)}", f"NLL − {table.preset.title_of(reference)}"]
    for row in table.rows:
        lines += ["## " + ", ".join(str(value) for value in row.facts.values()), ""]
        body = [
            [table.preset.title_of(m) + notes.mark(e.remarks), *_values(e, notes, bool(reference))]
            for m, e in row.entries.items()
        ]
        lines += [*lines_of(header, body), ""]
    legend = (
        "Mean ± sd over runs, test nodes of the protocol; 'all': every node outside training and validation. "
        "Accuracy, ECE, floor and excess in percent. 'changed': test predictions that calibration changed."
    )
    if reference:
        legend += " Differences: paired test on the same nodes, Holm over the methods of the row; "
        legend += f"✓ better, ✗ worse at {LEVEL:.0%}."
    return [*lines, legend, *_summary(table), *_over_graphs(table), *rank_lines(table, table.ranks), *notes.lines()]


def _values(entry: Entry, notes: Footnotes, compared: bool) -> list[str]:
    if not entry.records:
        return [f"–{notes.mark([entry.missing])}", *[""] * (11 if compared else 9)]
    changed = sum(int(record.result["changed"]) for record in entry.records) / len(entry.records)
    cells = [
        plus_minus(entry, "accuracy"),
        plus_minus(entry, "ece"),
        number(entry.mean("ece_floor"), "ece"),
        number(entry.mean("ece_excess"), "ece"),
        plus_minus(entry, "nll"),
        number(entry.mean("brier"), "brier"),
        number(entry.mean("ece", "unlabelled"), "ece"),
        number(entry.mean("ece_floor", "unlabelled"), "ece"),
        number(entry.mean("nll", "unlabelled"), "nll"),
        f"{changed:.1f}",
    ]
    return cells + [_difference(entry, metric) for metric in ("ece", "nll")] if compared else cells


def _difference(entry: Entry, metric: str) -> str:
    if metric not in entry.against:
        return ""
    found = entry.against[metric]
    mark = "" if not found.real else " ✓" if found.value < 0 else " ✗"
    return f"{metric_of(metric).text(found.value, sign=True)}{mark}"


def _summary(table: Table) -> list[str]:
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
        cells = [table.preset.title_of(m), str(len(pairs))]
        for metric in ("ece_excess", "nll"):
            mean = sum(a.mean(metric) for a, _ in pairs) / len(pairs)
            gap = sum(a.mean(metric) - b.mean(metric) for a, b in pairs) / len(pairs)
            found = [
                a.against[k]
                for a, _ in pairs
                for k in (("ece" if metric == "ece_excess" else "nll"),)
                if k in a.against
            ]
            won = sum(d.real and d.value < 0 for d in found)
            lost = sum(d.real and d.value > 0 for d in found)
            digits = 2 if metric == "ece_excess" else 4
            cells += [f"{mean:.{digits}f}", f"{gap:+.{digits}f}", f"{won} / {lost}"]
        body.append(cells)
    name = table.preset.title_of(reference)
    header = ["method", "rows", "mean excess", f"− {name}", "better / worse", "mean NLL", f"− {name}", "better / worse"]
    text = (
        "Means over the rows a method has; 'better / worse': rows in which the paired test tells it from the reference."
    )
    return ["", "## Over all rows", "", *lines_of(header, body), "", text]


SUITE = (("ece_excess", "test"), ("nll", "test"), ("ece_excess", "unlabelled"), ("nll", "unlabelled"))


def _over_graphs(table: Table) -> list[str]:
    """The preset's own method against its rivals, over all graphs that both have."""
    own = table.preset.own
    found = {
        m: [_by_graph(table, own, m, *measure) for measure in SUITE] for m in table.preset.rivals if m in table.methods
    }
    found = {m: measured for m, measured in found.items() if len(measured[0]) > 1}
    if not found:
        return []
    p = [holm([over_graphs(found[m][k]) for m in found]) for k in range(len(SUITE))]
    body = []
    for place, (m, measured) in enumerate(found.items()):
        cells = [table.preset.title_of(m), str(len(measured[0]))]
        for k, (metric, _) in enumerate(SUITE):
            mean, chance = sum(measured[k]) / len(measured[k]), p[k][place]
            mark = "" if chance > LEVEL else " ✓" if mean < 0 else " ✗"
            digits = 2 if metric_of(metric).unit == "percent" else 4
            cells += [f"{mean:+.{digits}f}{mark}", f"{chance:.3f}"]
        body.append(cells)
    title = table.preset.title_of(own)
    header = ["minus", "graphs", "excess", "p", "NLL", "p", "excess all", "p", "NLL all", "p"]
    text = (
        f"{title} minus each rival, mean over graphs (the rows of one graph are averaged first: they share test nodes). "
        f"p: exact sign-change test over graphs, Holm over the rivals; ✓ better, ✗ worse at {LEVEL:.0%}."
    )
    return ["", f"## {title} against its rivals, over graphs", "", *lines_of(header, body), "", text]


def _by_graph(table: Table, a: str, b: str, metric: str, where: str) -> list[float]:
    """a minus b, one value a graph."""
    graphs: dict[str, list[float]] = {}
    for row in table.rows:
        ours, theirs = row.entries.get(a), row.entries.get(b)
        if ours is not None and theirs is not None and ours.records and theirs.records:
            gap = ours.mean(metric, where) - theirs.mean(metric, where)
            graphs.setdefault(str(row.facts["dataset"]), []).append(gap)
    return [sum(gaps) / len(gaps) for gaps in graphs.values()]
