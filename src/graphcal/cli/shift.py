"""``graphcal shift``: how a calibration behaves on wrong predictions, unknown classes and changed graphs."""

from __future__ import annotations

import json as json_format
from itertools import groupby
from typing import TYPE_CHECKING, Any

import typer

from graphcal.cli.graph_argument import graph_of

if TYPE_CHECKING:
    from rich.table import Table

TABLES = ("shift", "wrong", "weights", "zero-decay")
HEADINGS = {
    "accuracy": "acc",
    "gap": "gap",
    "conf_right": "conf\nright",
    "conf_wrong": "conf\nwrong",
    "ece": "ece",
    "auroc": "auroc",
    "conf_unknown": "conf\nnew",
    "auroc_unknown": "auroc\nnew",
    "changed": "changed",
}  # in per cent; short enough for 80 columns beside the methods' names


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


def _heading(row: dict[str, Any]) -> str:
    """What the rows of one printed table have in common."""
    if "final_decay" in row:
        return f"final decay: {row['final_decay']}"
    if row.get("shift") in ("features", "edges"):
        return f"{row['shift']}, {100 * row['share']:.0f} % changed"
    return str(row.get("shift", ""))


def _drawn(rows: list[dict[str, Any]]) -> Table:
    """One row for each method; only a method's name may wrap, so no number is ever cut."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    drawn.add_column("\nmethod", overflow="fold")
    numbers = [name for name in HEADINGS if name in rows[0]]
    for heading in [*(HEADINGS[name] for name in numbers), "nll"]:
        drawn.add_column(heading if "\n" in heading else f"\n{heading}", justify="right", no_wrap=True)
    for row in rows:
        drawn.add_row(row["method"], *(f"{100 * row[name]:.1f}" for name in numbers), f"{row['nll']:.3f}")
    return drawn


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console

    console = Console()
    for heading, group in groupby(rows, key=_heading):
        if heading:
            console.print(f"[bold]{heading}[/]", highlight=False)
        console.print(_drawn(list(group)))
        console.print()
    console.print("[dim]Test nodes, per cent, means over seeds; nll in nats; gap: acc minus confidence.[/]")
    if any("conf_unknown" in row for row in rows):
        console.print("[dim]new: nodes of the unknown class; auroc new: how well low confidence shows them.[/]")
