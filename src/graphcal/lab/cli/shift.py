"""``graphcal shift``: how a calibration behaves on wrong predictions, unknown classes and changed graphs."""

from __future__ import annotations

import json as json_format
from itertools import groupby
from typing import TYPE_CHECKING, Any

import typer

from graphcal.cli.arguments import JSON
from graphcal.cli.completion import complete_calibrators
from graphcal.cli.console import plain_console
from graphcal.lab.cli import arguments

if TYPE_CHECKING:
    from rich.table import Table

TABLES = ("shift", "wrong", "inductive")
SERVED = {
    "table": "the graph read once as a whole",
    "plain": "nothing known of the neighbourhood",
    "batch": "the neighbourhood read off the sampled batch",
}
# In per cent, but for the NLL; short enough for 80 columns beside the methods' names
SHOWN_METRICS = (
    "accuracy", "signed_gap", "confidence_right", "confidence_wrong", "ece", "auroc", "confidence_unknown", "auroc_unknown",
    "changed", "nll",
)  # fmt: skip


def shift(
    dataset: str = arguments.DATASET,
    table: str = typer.Option("shift", metavar="NAME", help=f"Which table: {', '.join(TABLES)}."),
    backbone: str = arguments.BACKBONE,
    calibrator: str = typer.Option(
        "none,ts,scar,graph-scaling",
        metavar="NAME,...",
        autocompletion=complete_calibrators,
        help="Calibrators to compare, separated by commas (see `graphcal methods`).",
    ),
    seeds: int = typer.Option(3, min=1, metavar="N", help="How many times to train."),
    unknown: int = typer.Option(0, min=0, metavar="CLASS", help="The class that is left out in the table `shift`."),
    labels_per_class: int = arguments.LABELS_PER_CLASS,
    protocol: str = arguments.PROTOCOL,
    split: int = arguments.SPLIT,
    columns: str = arguments.GRAPH_COLUMNS,
    delimiter: str = arguments.DELIMITER,
    keep: str = typer.Option(
        "",
        metavar="FOLDER",
        help="Keep what is computed of the table `inductive` in this folder, and go on from there.",
    ),
    json: bool = JSON,
) -> None:
    """Measure confidence on wrong predictions and out of distribution.

    graphcal shift citeseer              # mixed features, rewired edges
    graphcal shift cora --table wrong    # confidence on wrong predictions
    graphcal shift photo --table inductive --backbone sage  # nodes to come
    """
    from graphcal.lab.shift import inductive, out_of_distribution, wrong_predictions
    from graphcal.methods import CALIBRATORS

    if table not in TABLES:
        raise ValueError(f"--table {table!r} is not one of {', '.join(TABLES)}")
    methods = {name: CALIBRATORS[name]() for name in (part.strip() for part in calibrator.split(",")) if name}
    data = arguments.graph_of(dataset, protocol, labels_per_class, split, columns, delimiter)
    if table == "shift":
        rows = out_of_distribution(data, backbone, seeds=range(seeds), unknown=unknown, methods=methods)
    elif table == "inductive":
        rows = inductive(data, backbone, seeds=range(seeds), methods=methods, folder=keep or None)
    else:
        rows = wrong_predictions(data, backbone, seeds=range(seeds), methods=methods)
    if json:
        typer.echo(json_format.dumps({"schema": 1, "rows": rows}))
    else:
        show_rows(rows)


def _heading(row: dict[str, Any]) -> str:
    """Heading of a printed table: what its rows have in common."""
    if "final_decay" in row:
        return f"final decay: {row['final_decay']}"
    if row.get("shift") in ("features", "edges"):
        return f"{row['shift']}, {100 * row['share']:.0f} % changed"
    if row.get("shift") == "wave":
        return f"wave {row['wave']}: nodes that were not there before"
    if row.get("shift") == "sampled":
        return f"fan-out {row['fanout']}, {SERVED[row['way']]}"
    return str(row.get("shift", ""))


def _drawn(rows: list[dict[str, Any]]) -> Table:
    """A row per method; only a method's name may wrap, so no number is ever cut."""
    from rich.table import Table

    from graphcal.metrics.names import METRICS

    drawn = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    drawn.add_column("\nmethod", overflow="fold")
    columns = [METRICS[key] for key in SHOWN_METRICS if key in rows[0]]
    for metric in columns:
        first, _, second = metric.short.partition(" ")
        drawn.add_column(f"{first}\n{second}" if second else f"\n{first}", justify="right", no_wrap=True)
    for row in rows:
        cells = (m.text(row[m.key], digits=1 if m.unit == "percent" else 3) for m in columns)
        drawn.add_row(row["method"], *cells)
    return drawn


def show_rows(rows: list[dict[str, Any]]) -> None:
    """Print tables of methods, one per condition."""
    console = plain_console()
    for heading, group in groupby(rows, key=_heading):
        if heading:
            console.print(heading, style="bold")
        console.print(_drawn(list(group)))
        console.print()
    console.print("Test nodes, per cent, means over seeds; NLL in nats; gap: accuracy minus confidence.", style="dim")
    if any("confidence_unknown" in row for row in rows):
        console.print("new: nodes of the unknown class; AUROC new: how well low confidence shows them.", style="dim")
