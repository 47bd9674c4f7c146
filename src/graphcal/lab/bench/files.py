"""Write the files of a preset, and read a table back from them.

NAME.md NAME.tex              the table for people
NAME.csv NAME-runs.csv        one line per method, one line per run
NAME-tests.csv                differences to the best of each row, by paired tests (`graphcal bench archive`)
NAME-bins.csv                 of a figure of reliability: one line per bin, means over runs
NAME-summary.csv              of a summary over graphs: means and differences by section, also those that the page leaves out
NAME-against.csv              of a list: every method minus the reference, by a paired test on the same nodes of each row
NAME.svg                      a figure, where there is one to draw
NAME-seconds.csv              how long it took: different every time; all others are the same bytes for the same records
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphcal.files import write_atomically
from graphcal.lab.bench.comparisons import Difference
from graphcal.lab.bench.contents import axis_cells, axis_title, compared_of, means_of, sections_of, table_blocks
from graphcal.lab.bench.document import Drawing, markdown
from graphcal.lab.bench.expansion import blanks
from graphcal.lab.bench.figures import figure_of, reliability_of
from graphcal.lab.bench.presets import Preset
from graphcal.lab.bench.records import Record
from graphcal.lab.bench.tabulation import Entry, Row, Table, empty, marked_metrics, printed, with_marks
from graphcal.metrics.names import metric_of
from graphcal.plots import svg

FIRST = ("accuracy", "ece", "ece_floor", "ece_excess", "ece_debiased", "nll", "brier", "signed_gap")
ADDED = ("aurc", "eaurc", "coverage_at_5", "worst_slice")  # blank for records that were made before they were measured
EXPORTED = (*FIRST, *ADDED)
PARTS = ("train", "search", "fit", "apply")  # seconds of one core


def write_files(table: Table, folder: Path) -> list[Path]:
    """Write every form of the table into the folder; gives the paths."""
    name, blocks, drawing = table.preset.name, table_blocks(table), drawing_of(table)
    texts = {
        f"{name}.md": markdown([*blocks[:2], *drawing, *blocks[2:]]),  # below title and source
        f"{name}.tex": latex(table),
        **data_of(table),
        **{figure.file: figure.svg for figure in drawing},
    }
    return [write_atomically(folder / file, text) for file, text in texts.items()]


def data_of(table: Table) -> dict[str, str]:
    """File name -> CSV, for all data of a table or figure."""
    name, kind = table.preset.name, table.preset.kind
    texts = {
        f"{name}.csv": csv_of_methods(table),
        f"{name}-runs.csv": csv_of_runs(table),
        f"{name}-seconds.csv": csv_of_seconds(table),
        f"{name}-bins.csv": csv_of_bins(table) if kind in ("reliability", "histograms") else "",
        f"{name}-summary.csv": csv_of_summary(table),
        f"{name}-against.csv": csv_of_differences(table),
    }
    return {file: text for file, text in texts.items() if text}


def drawing_of(table: Table) -> list[Drawing]:
    """The figure, where there is one."""
    figure = figure_of(table)
    return [] if figure is None else [Drawing(table.preset.title, f"{table.preset.name}.svg", svg(figure))]


def computing_seconds(table: Table) -> float:
    """Seconds of one core behind the table; a training that several methods share is counted once."""
    trained: dict[tuple[str, str], float] = {}
    total = 0.0
    for row in table.rows:
        for entry in row.entries.values():
            for record in entry.records:
                run = str(record.spec["run"])
                trained |= {(group, run): float(seconds) for group, seconds in record.seconds["trained"].items()}
                total += record.seconds["fit"] + record.seconds["apply"] + record.seconds.get("serve", 0.0)
    return total + sum(trained.values())


# --------------------------------------------------------------------------------------------------------- CSV and LaTeX


def csv_text(header: Sequence[str], body: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([header, *body])
    return text.getvalue()


def csv_of_methods(table: Table) -> str:
    """One line per method in each row: mean and sd of every metric, and the published value."""
    names = list(table.rows[0].axis_values)
    values = [f"{where}{m}_{part}" for where in ("", "all_") for m in EXPORTED for part in ("mean", "sd")]
    published = ("published_mean", "published_sd", "differs", "best", "missing")
    header = [*names, "method", "title", "runs", *values, *published]
    body: list[list[Any]] = []
    for row in table.rows:
        for method, entry in row.entries.items():
            numbers: list[str] = [""] * len(values)
            if entry.records:
                numbers = [
                    f"{part(m, where):.6f}" if entry.has(m, where) else ""
                    for where in ("test", "unlabelled")
                    for m in EXPORTED
                    for part in (entry.mean, entry.sd)
                ]
            paper = [f"{v:.2f}" for v in entry.published] if entry.published else ["", ""]
            differs = int(entry.differs(table.preset.metric))
            body.append(
                [*(row.axis_values[n] for n in names), method, table.preset.title_of(method), len(entry.records), *numbers,
                 *paper, differs, int(entry.best), entry.missing]
            )  # fmt: skip
    return csv_text(header, body)


def csv_of_runs(table: Table) -> str:
    """One line per run."""
    names = list(table.rows[0].axis_values)
    header = [*names, "method", "split", "seed", *EXPORTED, *(f"all_{m}" for m in EXPORTED), "changed"]
    body: list[list[Any]] = []
    for row in table.rows:
        for method, entry in row.entries.items():
            for record in entry.records:
                split, seed = record.spec["run"]
                groups = [record.result[where].get(m) for where in ("test", "unlabelled") for m in EXPORTED]
                numbers = ["" if value is None else f"{value:.6f}" for value in groups]
                body.append(
                    [*(row.axis_values[n] for n in names), method, split, seed, *numbers, record.result["changed"]]
                )
    return csv_text(header, body)


def csv_of_bins(table: Table) -> str:
    """One line per bin: its nodes, their mean confidence, and how many were right; means over runs."""
    names = list(table.rows[0].axis_values)
    body: list[list[Any]] = []
    for row in table.rows:
        for method, entry in row.entries.items():
            rel = reliability_of(entry) if entry.records else None
            for k in range(len(rel.count) if rel else 0):
                assert rel is not None
                numbers = [rel.edges[k], rel.edges[k + 1], rel.count[k], rel.conf_sum[k], rel.right_sum[k]]
                body.append([*(row.axis_values[n] for n in names), method, *(f"{float(x):.6f}" for x in numbers)])
    return csv_text([*names, "method", "low", "high", "nodes", "confidence_sum", "right"], body)


def csv_of_summary(table: Table) -> str:
    """One line per method in each section; empty where the preset asks for no summary or nothing is finished."""
    metrics = table.preset.summary.get("metrics", ())
    if not metrics or not any(row.runs for row in table.rows):
        return ""
    body: list[list[str]] = []
    for title, rows in sections_of(table):
        means, compared = means_of(table, rows, metrics), compared_of(table, rows)
        more = {line[0].words: [cell.words for cell in line[2:]] for line in compared.body} if compared else {}
        header = ["section", *means.header, *(_named(compared.header[2:]) if compared else ())]
        body += [[title, *(cell.words for cell in line), *more.get(line[0].words, ())] for line in means.body]
    return csv_text(header, [[*line, *[""] * (len(header) - len(line))] for line in body])


def _named(header: Sequence[str]) -> list[str]:
    """Columns of differences with names of their own: NLL difference, NLL better / worse, NLL p."""
    names, metric = list[str](), ""
    for name in header:
        metric = metric if name in ("better / worse", "p") else name
        names.append(f"{metric} {'difference' if name == metric else name}")
    return names


def csv_of_differences(table: Table) -> str:
    """One line per method and metric in each row; empty where nothing was compared with a reference."""
    names = list(table.rows[0].axis_values)
    body = [
        [*(row.axis_values[n] for n in names), method, metric, f"{gap.value:.6f}", f"{gap.p:.6f}"]
        for row in table.rows
        for method, entry in row.entries.items()
        for metric, gap in entry.against.items()
    ]
    return csv_text([*names, "method", "metric", "difference", "p"], body) if body else ""


def csv_of_seconds(table: Table) -> str:
    """Mean seconds of one core for one run, by method."""
    names = list(table.rows[0].axis_values)
    body = [
        [*(row.axis_values[n] for n in names), method, *(f"{entry.seconds(part):.4f}" for part in PARTS)]
        for row in table.rows
        for method, entry in row.entries.items()
        if entry.records
    ]
    return csv_text([*names, "method", *PARTS], body)


def latex(table: Table) -> str:
    """Floating tables with caption and label in booktabs, one per metric; bold as in the Markdown."""
    preset = table.preset
    return "\n".join(_latex(table, m) for m in (preset.metric, *preset.beside) if not m.startswith("all_"))


def _latex(table: Table, metric: str) -> str:
    preset = table.preset
    head = [*(axis_title(axis) for axis in table.axes), *(preset.title_of(m) for m in table.methods)]
    heading, legend = metric_of(metric).heading, "Bold: the best of its row by a paired test."
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escaped(f'{preset.title}. {heading}, mean ± standard deviation over runs. {legend}')}}}",
        rf"\label{{tab:{preset.name}{'' if metric == preset.metric else f'-{metric}'}}}",
        rf"\begin{{tabular}}{{{'l' * len(table.axes)}{'r' * len(table.methods)}}}",
        r"\toprule",
        " & ".join(map(_escaped, head)) + r" \\",
        r"\midrule",
    ]
    for row in table.rows:
        cells = [_escaped(text) for text in axis_cells(table, row)]
        for method in table.methods:
            entry = row.entries.get(method)
            if entry is None or not entry.records:
                cells.append("--" if entry is not None else "")
                continue
            text = entry.plus_minus(metric).replace(" ± ", r"{\scriptsize $\pm$") + "}"
            best = entry.best if metric == preset.metric else entry.styles.get(metric) == "bold"
            cells.append(rf"\textbf{{{text}}}" if best else text)
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", **{mark: rf"\{mark}" for mark in "_%&#${}"},
}  # fmt: skip


def _escaped(text: str) -> str:
    """Text that LaTeX prints as it is: nothing in it is a command."""
    return "".join(LATEX.get(mark, mark) for mark in " ".join(text.split()))


Place = tuple[str, ...]  # the values of the axes, as they are written
Line = Mapping[str, str]


def read_table(folder: Path, preset: Preset) -> Table:
    """The table of a preset, as far as its files in the folder go; rows that the preset no longer has are left out."""
    axes = list(preset.axes)
    runs, bins, seconds, tests, against = (
        _by_place(folder / f"{preset.name}-{part}.csv", axes)
        for part in ("runs", "bins", "seconds", "tests", "against")
    )
    rows = []
    for texts, lines in runs.items():
        axis_values = {axis: _value(text, preset.axes[axis]) for axis, text in zip(axes, texts)}
        if None in axis_values.values():
            continue
        methods, drawn, spent = (_by_method(part.get(texts, [])) for part in ({texts: lines}, bins, seconds))
        entries = {}
        for method in (m for m in preset.methods if m in methods):
            more = {"bins": _bins(drawn[method])} if method in drawn else {}
            records = tuple(_record(line, more, spent.get(method, [{}])[0]) for line in methods[method])
            compared = (line for line in against.get(texts, []) if line["method"] == method and line["p"])
            gaps = {line["metric"]: _difference(line) for line in compared}  # older files have marks, and no p
            entries[method] = Entry(records, (), len(records), *printed(preset, axis_values, method), against=gaps)
        entries |= {blank.method: empty(preset, blank) for blank in blanks(preset) if blank.row == axis_values}
        marked = with_marks(preset, entries, _tests(tests.get(texts, []), marked_metrics(preset)))
        rows.append(Row(axis_values, {m: marked[m] for m in preset.methods if m in marked}, same_nodes=texts in tests))
    return Table(preset, tuple(rows))


def read_lines(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file, none where it is not there."""
    return parse_lines(path.read_text(encoding="utf-8")) if path.exists() else []


def parse_lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def place_of(line: Mapping[str, Any], axes: Sequence[str]) -> Place:
    return tuple(str(line[axis]) for axis in axes)


def _by_place(path: Path, axes: Sequence[str]) -> dict[Place, list[Line]]:
    groups: dict[Place, list[Line]] = {}
    for line in read_lines(path):
        if missing := [axis for axis in axes if axis not in line]:
            raise ValueError(f"{path} has no column {', '.join(missing)}: its rows are not those of this preset")
        groups.setdefault(place_of(line, axes), []).append(line)
    return groups


def _by_method(lines: Sequence[Line]) -> dict[str, list[Line]]:
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line["method"], []).append(line)
    return groups


def _record(line: Line, more: Mapping[str, Any], spent: Line) -> Record:
    names = [name for name in line if f"all_{name}" in line]
    test = {name: float(line[name]) for name in names if line[name]}  # blank: measured only in later records
    others = {name: float(line[f"all_{name}"]) for name in names if line[f"all_{name}"]}
    seconds = {part: float(spent[part]) for part in ("train", "search", "fit", "apply") if part in spent}
    run = [int(line["split"]), int(line["seed"])]
    return Record({"run": run}, {"test": test, "unlabelled": others, **more}, seconds, {})


def _tests(lines: Sequence[Line], metrics: Sequence[str]) -> dict[str, tuple[str, dict[str, Difference]]]:
    """Best method of the row for each metric, and every other one minus it."""
    groups: dict[str, tuple[str, dict[str, Difference]]] = {}
    for line in (line for line in lines if line["metric"] in metrics):
        _, others = groups.setdefault(line["metric"], (line["best"], {}))
        others[line["method"]] = _difference(line)
    return groups


def _difference(line: Line) -> Difference:
    return Difference(float(line["difference"]), float(line["p"]))


def _bins(lines: Sequence[Line]) -> dict[str, list[float]]:
    """Bins in the form of records: edges, and count, mean confidence and correct predictions of each."""
    count = [float(line["nodes"]) for line in lines]
    conf = [float(line["confidence_sum"]) / n if n else 0.0 for line, n in zip(lines, count)]
    edges = [float(lines[0]["low"]), *(float(line["high"]) for line in lines)]
    return {"edges": edges, "count": count, "confidence": conf, "right": [float(line["right"]) for line in lines]}


def _value(text: str, values: Sequence[Any]) -> Any:
    """The value of the axis that is written so."""
    return next((value for value in values if str(value) == text), None)
