"""``graphcal watch``: is a calibrator's promise still valid, drifting or expired? The exit code is the answer."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphcal.cli.arguments import CLASSES, KIND, SOURCE, TABLE_COLUMNS, calibrator_in, column_names
from graphcal.cli.console import plain_console

if TYPE_CHECKING:
    from graphcal.decisions.watching import Validity

EXIT = {"still valid": 0, "expired": 1, "drifting": 3}


def watch(
    calibrator: Path = typer.Argument(
        ..., help="calibrator.safetensors, or the folder in which `graphcal run` or `graphcal calibrate` wrote it."
    ),
    predictions: Path = typer.Argument(
        ..., help="Predictions as served, calibrated: a file or a folder, as `graphcal score` writes them."
    ),
    time: str = typer.Option(
        "", metavar="COLUMN", help="Column with a time, a date or a number that grows: windows are cut by it."
    ),
    labels: Path = typer.Option(
        None, metavar="FILE", help="Table of id and label, where labels have arrived in a file of their own."
    ),
    threshold: float = typer.Option(
        None, metavar="SHARE", help="Confidence from which nodes are decided, where the calibrator does not say it."
    ),
    max_error: float = typer.Option(
        None, metavar="SHARE", help="Promised share of errors among them, where the calibrator does not say it."
    ),
    classes: str = CLASSES,
    kind: str = KIND,
    source: str = SOURCE,
    columns: str = TABLE_COLUMNS,
    json: bool = typer.Option(False, "--json", metavar="", help="Print everything as JSON."),
) -> None:
    """Do predictions still look as they did when the calibrator was fitted, and does its promise hold?

    Exit code 0: still valid. 1: expired, the promised risk is refuted by labels. 2: bad input. 3: drifting.

    graphcal watch calibrator.safetensors today.parquet --time week
    """
    from graphcal.decisions.watching import watch as compare
    from graphcal.persist import read_reference
    from graphcal.tables.reading import read_table

    reference = read_reference(calibrator_in(calibrator))
    if (threshold is None) != (max_error is None):
        raise ValueError("a promise is a --threshold and a --max-error: give both or neither")
    names = column_names(columns)
    table = read_table(predictions, kind=kind, classes=classes, labels=labels, columns=names, source=source)
    column = table.times(time) if time else None
    promise = None if threshold is None else {"threshold": threshold, "max_error": max_error}
    found = compare(reference, table.log_probs, table.y, column, promise=promise, names=table.classes)
    if json:
        typer.echo(json_format.dumps(found.to_dict()))
    else:
        _show(found)
        if found.status == "drifting" and not table.layout.is_calibrated:
            typer.echo(
                f"{table.layout.scores[0]!r} is taken as served, that is calibrated; graphcal score calibrates raw scores."
            )
    raise typer.Exit(EXIT[found.status])


def _show(found: Validity) -> None:
    from rich.table import Table

    console = plain_console(soft_wrap=True)
    console.print(found.sentence, style="bold")
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in (
        "\nwindow",
        "\nnodes",
        "\nconfidence",
        "told apart\n(AUC)",
        "\nlabels",
        "\naccuracy",
        "\nslope",
        "",
    ):
        table.add_column(title, justify="left" if title in ("\nwindow", "") else "right", no_wrap=True)
    for w in found.windows:
        table.add_row(
            w.name,
            f"{w.nodes:,}",
            f"{100 * w.confidence:.1f} %",
            "–" if w.comparison is None else f"{w.comparison.auc:.2f}",
            f"{w.labels:,}",
            "–" if w.accuracy is None else f"{100 * w.accuracy:.1f} %",
            "–" if w.slope is None else f"{w.slope.value:.2f}",
            ", ".join(w.drifting),
        )
    console.print(table)
