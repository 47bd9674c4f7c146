"""``graphcal watch``: check whether a calibrator and its decision are still valid, and set the exit code."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphcal.cli.alerts import print_windows
from graphcal.cli.arguments import CLASSES, JSON, KIND, LABELS, SOURCE, TABLE_COLUMNS, calibrator_in, column_names
from graphcal.cli.console import plain_console, print_line, print_summary

if TYPE_CHECKING:
    from torch import Tensor

    from graphcal.core import Calibration, Outputs
    from graphcal.decisions.monitoring import MonitorReport
    from graphcal.tables.reading import PredictionTable

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
    labels: Path = LABELS,
    decision: Path = typer.Option(
        None, metavar="FILE", help="Decision to test, as `graphcal decide` wrote it (default: that of the calibrator)."
    ),
    edges: Path = typer.Option(
        None,
        metavar="FILE",
        help="Table of edges. PREDICTIONS are then as the model gave them; the calibrator, fitted with sets=True or by `graphcal "
        "count`, calibrates them and estimates their accuracy without labels.",
    ),
    classes: str = CLASSES,
    kind: str = KIND,
    source: str = SOURCE,
    columns: str = TABLE_COLUMNS,
    json: bool = JSON,
) -> None:
    """Compare new predictions with those at fitting time, and test the promised error rate.

    Exit code 0: still valid. 1: expired, labels refute the promised error rate. 2: bad input. 3: drifting.

    graphcal watch calibrator.safetensors today.parquet --time week
    graphcal watch graphcal-alerts/ scored/ --time day --window month
    graphcal watch graphcal-count/ predictions.parquet --edges edges.parquet
    """
    from graphcal.decisions.decision import Decision
    from graphcal.decisions.monitoring import watch as compare
    from graphcal.saving import read_reference
    from graphcal.tables.reading import read_table

    stated = None if decision is None else Decision.load(decision)
    table = read_table(predictions, kind, None, classes, labels, column_names(columns), source=source)
    column = table.times(time) if time else None
    options: dict[str, Any] = {"decision": stated, "names": table.classes, "window": window}
    if edges is None:
        report = compare(read_reference(calibrator_in(calibrator)), table.log_probs, table.y, column, **options)
    else:
        reference, calibration, out, log_probs = _calibrated(
            calibrator_in(calibrator), table, edges, column_names(columns)
        )
        report = compare(
            reference, log_probs, table.y, column, graph=out.graph, calibration=calibration, out=out, **options
        )
    if json:
        typer.echo(json_format.dumps(report.to_dict()))
    else:
        _show(report)
        if report.status == "drifting" and edges is None and not table.layout.is_calibrated:
            print_line(
                f"Note: {table.layout.scores[0]!r} is taken as served, that is calibrated. To calibrate it, run graphcal score."
            )
    raise typer.Exit(EXIT[report.status])


def _calibrated(
    path: Path, table: PredictionTable, edges: Path, columns: dict[str, str]
) -> tuple[dict[str, Any], Calibration, Outputs, Tensor]:
    """Reference, calibration, outputs and calibrated log-probabilities of a model's own predictions and edges."""
    import torch
    from torch_geometric.data import Data

    from graphcal.core import Outputs
    from graphcal.metrics.references import reference_summary
    from graphcal.saving import find_reference, restore
    from graphcal.tables.edges import read_edges

    calibration: Any = restore(path)
    if getattr(calibration, "sets", None) is None:
        raise ValueError(
            f"{path} holds no refits to estimate accuracy with. Fit it with GraphScaling(sets=True) or graphcal count, or "
            "leave out --edges and pass calibrated predictions."
        )
    fitted = calibration.fitted_on.get("table", {}).get("classes")
    if fitted is not None and list(fitted) != list(table.classes):
        raise ValueError(
            f"The calibrator was fitted on the classes {', '.join(map(str, fitted))}, in this order; got "
            f"{', '.join(map(str, table.classes))}. Pass --classes."
        )
    graph = Data(edge_index=read_edges(edges, table.ids, columns), num_nodes=table.num_rows)
    graph.class_names = list(table.classes)
    out = Outputs(table.logits, graph)
    with torch.no_grad():
        log_probs = calibration(out)
    reference = find_reference(path) or reference_summary(calibration.sets.held_out)  # labelled rows are a random draw
    return reference, calibration, out, log_probs


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
            f"{w.comparison.auc:.2f}",
            f"{w.labels:,}",
            "–" if w.accuracy is None else f"{100 * w.accuracy:.1f} %",
            "–" if w.slope is None else f"{w.slope.value:.2f}",
        )
    console.print(table)
    console.print("AUC: how well a test separates the rows of the fit from the window; 0.5: not at all.", style="dim")
    for w in report.windows:
        if w.drifting:
            console.print(f"* {w.name}: {', '.join(w.drifting)}", style="dim")
