"""``graphcal count``: expected errors or positives per group of rows."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphcal.cli.alerts import share_of
from graphcal.cli.arguments import CLASSES, EDGES, JSON, KIND, LABELS, RANDOM_DRAW, SOURCE, TABLE_COLUMNS, column_names
from graphcal.cli.console import plain_console, print_summary

if TYPE_CHECKING:
    from rich.table import Table

    from graphcal.count_table import CountTable

SHOWN = 15  # groups on the terminal


def count(
    scores: Path = typer.Argument(..., help="Table of predictions with labels where known; a file or a folder."),
    by: str = typer.Option(..., metavar="COLUMN", help="Groups to count in: a column, or community, or prediction."),
    edges: Path = EDGES,
    class_: str = typer.Option("", "--class", metavar="CLASS", help="Count rows of this class (default: errors)."),
    groups: str = typer.Option(
        "", metavar="COLUMN,...", help="Without edges: more columns whose rows err together, as customer,month."
    ),
    labels: Path = LABELS,
    kind: str = KIND,
    classes: str = CLASSES,
    source: str = SOURCE,
    columns: str = TABLE_COLUMNS,
    certainty: float = typer.Option(0.95, metavar="SHARE", help="Share of groups whose interval covers the truth."),
    precision: float = typer.Option(
        None,
        metavar="SHARE",
        help="Also certify a union of groups with this share of --class. Uses half of the labels.",
    ),
    random_draw: bool = RANDOM_DRAW,
    seed: int = typer.Option(0, min=0, metavar="N", help="Seed for the halves of labels with --precision."),
    out: Path = typer.Option(Path("graphcal-count"), metavar="FOLDER", help="Folder for the files."),
    json: bool = JSON,
) -> None:
    """Count errors, or rows of a class, per community, shop, month or predicted class, with intervals.

    Writes counts.parquet (a row per group), members.parquet (the group of each row), calibrator.safetensors, report.html and
    results.json. Intervals allow for rows of a group that err together.

    graphcal count scores.csv --edges edges.csv --by community --class fraud
    graphcal count scores.csv --edges edges.csv --by prediction
    graphcal count scores.csv --by shop --groups month
    """
    from graphcal.files import check_writable

    share_of(str(certainty), "--certainty")
    if precision is not None:
        share_of(str(precision), "--precision")
        if not class_:
            raise ValueError("--precision is about a class. Pass --class CLASS.")
    check_writable(out)

    from graphcal.count_table import count_rows
    from graphcal.tables.reading import read_table

    roles = column_names(columns)
    table = read_table(scores, kind, None, classes, labels, roles, None, source)
    names = [name.strip() for name in groups.split(",") if name.strip()]
    result = count_rows(
        table,
        by,
        edges,
        class_,
        names,
        certainty,
        precision=precision,
        random_draw=random_draw,
        seed=seed,
        columns=roles,
    )
    result.save(out)
    if json:
        typer.echo(json_format.dumps(result.to_dict()))
        return
    console = plain_console()
    first, *rest = result.summary
    print_summary(console, [first])
    console.print()
    console.print(group_table(result))
    console.print()
    files = "counts.parquet, members.parquet, calibrator.safetensors, report.html, results.json"
    print_summary(console, [*rest, ("Saved", f"{out}/ ({files})")])


def group_table(result: CountTable) -> Table:
    """The first groups, at most 80 columns wide; parts as shares of the variance."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in (result.by[:24], "rows", result.event[:16], "interval", "chance", "neighb.", "fit"):
        table.add_column(title, justify="left" if title == result.by[:24] else "right", no_wrap=True)
    for one in result.counts[:SHOWN]:
        variance = max(one.chance + one.neighbourhood + one.fit, 1e-300)
        parts = [f"{100 * part / variance:.0f} %" for part in (one.chance, one.neighbourhood, one.fit)]
        table.add_row(one.name[:24], f"{one.nodes:,}", f"{one.expected:,.1f}", f"{one.low:,} to {one.high:,}", *parts)
    if len(result.counts) > SHOWN:
        table.add_row(f"and {len(result.counts) - SHOWN:,} more")
    return table
