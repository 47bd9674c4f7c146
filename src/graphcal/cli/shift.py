"""``graphcal shift``: how a calibration behaves on wrong predictions, unknown classes and changed graphs."""

from __future__ import annotations

import json as json_format
from typing import Any

import typer

from graphcal.cli.graph_argument import graph_of

TABLES = ("shift", "wrong", "weights", "zero-decay")
SHOWN = (
    "accuracy",
    "conf",
    "gap",
    "conf_right",
    "conf_wrong",
    "ece",
    "auroc",
    "conf_unknown",
    "auroc_unknown",
    "changed",
)


def shift(
    dataset: str = typer.Argument(
        "citeseer", help="A dataset name (see `graphcal datasets`) or a path to your own graph."
    ),
    table: str = typer.Option("shift", help=f"Which table: {', '.join(TABLES)}."),
    backbone: str = typer.Option("gcn", help="The model to train: gcn, gat, sage, ... (docs/backbones.md)."),
    seeds: int = typer.Option(3, min=1, help="How many times to train."),
    unknown: int = typer.Option(0, min=0, help="The class that is left out in the table `shift`."),
    labels_per_class: int = typer.Option(
        20, min=1, help="Training labels for each class, where the protocol has a choice."
    ),
    protocol: str = typer.Option("", help="Which split (default: the graph's own)."),
    json: bool = typer.Option(False, "--json", help="Print the rows as JSON."),
) -> None:
    """Ask the uncomfortable questions: confidence on wrong predictions, out of distribution, without decay.

    graphcal shift citeseer                      # mixed features, rewired edges, an unknown class
    graphcal shift cora --table wrong            # confidence on right and on wrong predictions
    graphcal shift cora --table weights          # one weight or two
    graphcal shift cora --table zero-decay       # a final layer trained without weight decay
    """
    from graphcal import shift as tables

    if table not in TABLES:
        raise ValueError(f"--table {table!r} is not one of {', '.join(TABLES)}")
    data = graph_of(dataset, protocol, labels_per_class)
    if table == "shift":
        rows = tables.out_of_distribution(data, backbone, seeds=range(seeds), unknown=unknown)
    else:
        make = {"wrong": tables.wrong_predictions, "weights": tables.weights_table, "zero-decay": tables.zero_decay}
        rows = make[table](data, backbone, seeds=range(seeds))
    if json:
        typer.echo(json_format.dumps(rows))
    else:
        _show(rows)


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    labels: list[str] = [name for name in ("shift", "share", "final_decay", "method") if name in rows[0]]
    numbers = [name for name in SHOWN if any(name in row for row in rows)]
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in labels:
        drawn.add_column(name.replace("_", " "))
    for name in [*numbers, "nll"]:
        drawn.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        shown = [f"{100 * row[name]:.1f}" if name in row else "" for name in numbers]
        drawn.add_row(*(str(row[name]) for name in labels), *shown, f"{row['nll']:.3f}")
    console = Console()
    console.print(drawn)
    console.print("[dim]Per cent, means over seeds; nll in nats. Test nodes.[/]")
