"""Show the results of a study in the terminal: one line per idea, then a table of the methods.

The table is as wide as the terminal allows: columns are left out, numbers are never cut.
"""

from __future__ import annotations

import json as json_format
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphcal.cli.console import plain_console, print_summary

if TYPE_CHECKING:
    from rich.table import Table

    from graphcal.results import Results

SPREAD = ("accuracy", "ece", "nll", "brier")  # shown with their standard deviation over seeds
DIGITS = {"nll": 3, "brier": 3, "true_error": 1}
# Dropped in this order until the table fits: a standard deviation (±) or a whole column.
DROP_ORDER = ("±brier", "±nll", "±accuracy", "brier", "±ece", "ece_floor", "accuracy", "true_error", "ece_interval")


def save_and_show(results: Results, out: Path, json: bool) -> None:
    """Save the results, then print them; where they cannot be saved they are printed all the same."""
    results = replace(results, command="graphcal " + " ".join(sys.argv[1:]))
    try:
        page: Path | None = results.save(out)
    except (OSError, ValueError) as fault:
        page, lost = None, fault
    console = plain_console(stderr=True)
    for note in results.source.notes:
        console.print(f"Note: {note.rstrip('.')}.", style="dim")
    if json:
        typer.echo(json_format.dumps(results.record))
    else:
        show_results(results, page)
    if page is None:
        raise ValueError(f"the results could not be written to {out}: {getattr(lost, 'strerror', None) or lost}")


def show_results(results: Results, page: Path | None) -> None:
    """Print the summary, the table and where the files are."""
    from graphcal.reports.wording import choice_note, unit_of

    record, console = results.record, plain_console()
    rows, unit, seeds = list(results.summary), unit_of(record), len(record["seeds"])
    if page is not None:
        unlabelled = unit == "row" and record["num_nodes"] > sum(record["nodes"].values())
        files = "report.html, calibrator.safetensors, calibrated.parquet, results.json"
        rows.append(("Saved", f"{page.parent}/ ({files})"))
        rows.append(("Next", f"graphcal decide {page.parent}" + " --certify 0.5" * (not unlabelled)))
    print_summary(console, rows)
    counts = ", ".join(f"{record['nodes'][part]:,} {name}" for part, name in PARTS.items())
    model = f"{record['backbone']} on " if record.get("backbone") else ""
    runs = f"; mean ± sd over {seeds} seeds" if seeds > 1 else ""
    console.print(f"\n{model}{record['dataset']}: {counts} {unit}s, split {record['protocol']}{runs}", style="dim")
    console.print(results_table(record, console.width))
    console.print(
        "Floor: the ECE of a perfectly calibrated model on these test data. 95 %: interval of the true error.",
        style="dim",
    )
    if note := choice_note(record):
        console.print(note, style="dim")


PARTS = {"train": "training", "val": "validation", "test": "test"}


def columns_of(record: dict[str, Any], width: int) -> dict[str, list[str]]:
    """Heading -> cells; the first column are the methods."""
    one_run = len(record["seeds"]) == 1
    left_out = {f"±{key}" for key in SPREAD} if one_run else set()
    columns = _columns(record, left_out)
    for step in DROP_ORDER:
        if _width(columns) <= width:
            break
        left_out.add(step)
        columns = _columns(record, left_out)
    return columns


def results_table(record: dict[str, Any], width: int) -> Table:
    """The methods with their measurements, as wide as ``width`` allows."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    columns = columns_of(record, width)
    for number, heading in enumerate(columns):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for row in zip(*columns.values()):
        table.add_row(*row)
    return table


def _columns(record: dict[str, Any], left_out: set[str]) -> dict[str, list[str]]:
    methods = record["methods"]
    columns = {"method": ["uncalibrated" if name == "none" else name for name in methods]}
    for key in ("accuracy", "nll", "ece", "true_error", "ece_interval", "ece_floor", "brier"):
        if key not in left_out:
            cells = [_cell(method, key, key in SPREAD and f"±{key}" not in left_out) for method in methods.values()]
            columns[_heading(key)] = cells
    return columns


def _heading(key: str) -> str:
    from graphcal.metrics.names import METRICS  # torch is not imported for --help

    if key == "ece_interval":
        return "95 %"
    return METRICS[key].heading if key in ("accuracy", "ece") else METRICS[key].title


def _cell(method: dict[str, Any], key: str, spread: bool) -> str:
    from graphcal.metrics.names import METRICS

    if key == "ece_interval":
        low, high = method[key]
        return f"{100 * low:.1f}–{100 * high:.1f}"
    digits = DIGITS.get(key)
    if key == "true_error":
        return METRICS[key].text(method[key], digits)
    mean, sd = (METRICS[key].text(method[key][part], digits) for part in ("mean", "sd"))
    return f"{mean} ±{sd}" if spread else mean


def _width(columns: dict[str, list[str]]) -> int:
    return sum(max(map(len, [heading, *cells])) for heading, cells in columns.items()) + len(columns) - 1
