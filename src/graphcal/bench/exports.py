"""A table as CSV, for one line a method or one line a run, and as LaTeX."""

from __future__ import annotations

import csv
import io
from typing import Any

from graphcal.bench.markdown import AXIS_TITLES, axis_cells, plus_minus
from graphcal.bench.tables import Table

METRICS = ("accuracy", "ece", "ece_floor", "ece_excess", "ece_debiased", "nll", "brier", "signed_gap")


def _written(header: list[str], body: list[list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([header, *body])
    return text.getvalue()


def csv_of_methods(table: Table) -> str:
    """One line for each method in each row: mean and sd of every metric, and the published value."""
    names = list(table.rows[0].facts)
    values = [f"{where}{m}_{part}" for where in ("", "all_") for m in METRICS for part in ("mean", "sd")]
    header = [
        *names,
        "method",
        "title",
        "runs",
        *values,
        "published_mean",
        "published_sd",
        "differs",
        "best",
        "missing",
    ]
    body: list[list[Any]] = []
    for row in table.rows:
        for method, entry in row.entries.items():
            numbers: list[str] = [""] * len(values)
            if entry.records:
                numbers = [
                    f"{part(m, where):.6f}"
                    for where in ("test", "unlabelled")
                    for m in METRICS
                    for part in (entry.mean, entry.sd)
                ]
            published = [f"{v:.2f}" for v in entry.published] if entry.published else ["", ""]
            differs = int(entry.differs(table.preset.metric))
            body.append(
                [*(row.facts[n] for n in names), method, table.preset.title_of(method), len(entry.records), *numbers,
                 *published, differs, int(entry.best), entry.missing]
            )  # fmt: skip
    return _written(header, body)


def csv_of_runs(table: Table) -> str:
    """One line for each run."""
    names = list(table.rows[0].facts)
    header = [*names, "method", "split", "seed", *METRICS, *(f"all_{m}" for m in METRICS), "changed"]
    body: list[list[Any]] = []
    for row in table.rows:
        for method, entry in row.entries.items():
            for record in entry.records:
                split, seed = record.spec["run"]
                numbers = [f"{record.result[where][m]:.6f}" for where in ("test", "unlabelled") for m in METRICS]
                body.append([*(row.facts[n] for n in names), method, split, seed, *numbers, record.result["changed"]])
    return _written(header, body)


def latex(table: Table) -> str:
    """The grid with booktabs; bold as in the Markdown."""
    head = [*(AXIS_TITLES.get(n, n) for n in table.axes), *(_escaped(table.preset.title_of(m)) for m in table.methods)]
    lines = [f"% {table.preset.title}. Source: {table.preset.source}.",
             rf"\begin{{tabular}}{{{'l' * len(table.axes)}{'r' * len(table.methods)}}}", r"\toprule",
             " & ".join(head) + r" \\", r"\midrule"]  # fmt: skip
    for row in table.rows:
        cells = [_escaped(text) for text in axis_cells(table, row)]
        for method in table.methods:
            entry = row.entries.get(method)
            if entry is None or not entry.records:
                cells.append("--" if entry is not None else "")
                continue
            text = plus_minus(entry, table.preset.metric).replace(" ± ", r"{\scriptsize $\pm$") + "}"
            cells.append(rf"\textbf{{{text}}}" if entry.best else text)
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("_", r"\_").replace("%", r"\%").replace("&", r"\&")
