"""``graphcal watch``: check whether a calibrator and its decision are still valid, and set the exit code."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphcal.cli.alerts import print_windows
from graphcal.cli.arguments import CLASSES, KIND, SOURCE, TABLE_COLUMNS, calibrator_in, column_names
from graphcal.cli.console import plain_console, print_line, print_summary

if TYPE_CHECKING:
    from graphcal.decisions.monitoring import MonitorReport

EXIT = {"still valid": 0, "expired": 1, "drifting": 3}


def watch(
    calibrator: Path = typer.Argument(
        ..., help="calibrator.safetensors, or the folder in which `graphcal calibrate`, `alerts` or `run` wrote it."
    ),
    predictions: Path = typer.Argument(
        ..., help="Calibrated predictions: a file or a folder, as `graphcal score` writes them."
    ),
    time: str = typer.Option(
        "", metavar="COLUMN", help="Column with a time, a date or a growing number, which cuts the rows into windows."
    ),
    window: str = typer.Option("auto", metavar="NAME", help="Windows of dates: day, week or month. Needs --time."),
    labels: Path = typer.Option(
        None, metavar="FILE", help="Table with columns id and label, if the predictions hold no labels."
    ),
    decision: Path = typer.Option(
        None, metavar="FILE", help="Decision to test, as `graphcal decide` wrote it (default: that of the calibrator)."
    ),
    classes: str = CLASSES,
    kind: str = KIND,
    source: str = SOURCE,
    columns: str = TABLE_COLUMNS,
    json: bool = typer.Option(False, "--json", metavar="", help="Print the result as JSON."),
) -> None:
    """Compare new predictions with those at fitting time, and test the promised error rate.

    Exit code 0: still valid. 1: expired, labels refute the promised error rate. 2: bad input. 3: drifting.

    graphcal watch calibrator.safetensors today.parquet --time week
    graphcal watch graphcal-alerts/ scored/ --time day --window month
    """
    from graphcal.decisions.decision import Decision
    from graphcal.decisions.monitoring import watch as compare
    from graphcal.saving import read_reference
    from graphcal.tables.reading import read_table

    reference = read_reference(calibrator_in(calibrator))
    stated = None if decision is None else Decision.load(decision)
    table = read_table(predictions, kind, None, classes, labels, column_names(columns), source=source)
    column = table.times(time) if time else None
    report = compare(reference, table.log_probs, table.y, column, decision=stated, names=table.classes, window=window)
    if json:
        typer.echo(json_format.dumps(report.to_dict()))
    else:
        _show(report)
        if report.status == "drifting" and not table.layout.is_calibrated:
            print_line(
                f"Note: {table.layout.scores[0]!r} is taken as served, that is calibrated. To calibrate it, run graphcal score."
            )
    raise typer.Exit(EXIT[report.status])


def _show(report: MonitorReport) -> None:
    from rich.table import Table

    console = plain_console()
    print_summary(console, report.summary)
    console.print()
    alerts = [w.alerts for w in report.windows if w.alerts is not None]
    if alerts:
        print_windows(console, alerts, report.positive)
        console.print()
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("window", "rows", "confidence", "AUC", "labels", "accuracy", "slope"):
        table.add_column(title, justify="left" if title == "window" else "right", no_wrap=title != "window")
    for w in report.windows:
        table.add_row(
            f"{w.name} *" if w.drifting else w.name,
            f"{w.nodes:,}",
            f"{100 * w.confidence:.1f} %",
            "–" if w.comparison is None else f"{w.comparison.auc:.2f}",
            f"{w.labels:,}",
            "–" if w.accuracy is None else f"{100 * w.accuracy:.1f} %",
            "–" if w.slope is None else f"{w.slope.value:.2f}",
        )
    console.print(table)
    console.print("AUC: how well rows of the fit and of the window are told apart; 0.5: not at all.", style="dim")
    for w in report.windows:
        if w.drifting:
            console.print(f"* {w.name}: {', '.join(w.drifting)}", style="dim")
