"""``graphcal tune``: which weight decay should the final layer have?"""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphcal.cli.graph_argument import graph_of

if TYPE_CHECKING:
    from graphcal.tuning import DecaySearch


def tune(
    dataset: str = typer.Argument(
        "citeseer", help="A dataset name (see `graphcal datasets`) or a path to your own graph."
    ),
    backbone: str = typer.Option("gcn", help="The model to train: gcn, gat, sage, ... (docs/backbones.md)."),
    search: str = typer.Option("bisection", help="bisection (of the validation gap) or grid."),
    criterion: str = typer.Option("nll", help="What a grid minimises on the validation nodes: nll or ece."),
    after: str = typer.Option("", help="Judge each decay after this calibrator, e.g. ts or graph-scar."),
    decays: str = typer.Option("", help="The grid, or the two ends of the bisection, separated by commas."),
    sweep: str = typer.Option("", help="Only look: sweep the decay of final, global, others (commas), or both."),
    seeds: int = typer.Option(3, min=1, help="Seeds for each decay; all train together."),
    labels_per_class: int = typer.Option(
        20, min=1, help="Training labels for each class, where the protocol has a choice."
    ),
    protocol: str = typer.Option("", help="Which split (default: the graph's own)."),
    picture: Path = typer.Option(None, help="Draw the curve to this file (svg, png or pdf)."),
    json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Choose the weight decay of the final layer on validation nodes: SCAR's class-centroid level.

    graphcal tune citeseer
    graphcal tune cora --search grid --after ts      # is it still worth it after temperature scaling?
    graphcal tune cora --sweep both --picture f.svg  # the paper's figure: final-layer against global decay, test nodes
    """
    from graphcal.methods import CALIBRATORS
    from graphcal.tuning import PAPER_DECAYS, sweep_decay, tune_decay

    if after and after not in CALIBRATORS:
        raise ValueError(f"unknown calibrator {after!r}; choose from {', '.join(CALIBRATORS)}")
    data = graph_of(dataset, protocol, labels_per_class)
    chosen = _numbers(decays)
    found: Any
    if sweep:
        which = [name.strip() for name in sweep.split(",")]
        places = which[0] if len(which) == 1 else which
        found = sweep_decay(data, backbone, decays=chosen or PAPER_DECAYS, seeds=range(seeds), which=places)
    else:
        recipe = CALIBRATORS[after]() if after else None
        found = tune_decay(data, backbone, None, chosen, range(seeds), search, criterion, recipe)
    if json:
        typer.echo(json_format.dumps(found if sweep else found.to_dict()))
    elif sweep:
        _show_sweep(found)
    else:
        _show_search(found, f"{backbone} on {dataset}")
    if picture is not None:
        from graphcal.plots.tuning import save_decay_picture

        save_decay_picture(found, picture)
        typer.echo(f"Picture: {picture}", err=True)


def _numbers(text: str) -> list[float] | None:
    try:
        return [float(part) for part in text.split(",")] if text else None
    except ValueError:
        raise ValueError(f"--decays takes numbers separated by commas, such as 5e-4,5e-5; got {text!r}") from None


def _show_search(found: DecaySearch, title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold", title=f"{title}: validation nodes")
    for name in ("final decay", "NLL", "ECE %", "accuracy %", "confidence %", "gap %"):
        table.add_column(name, justify="right")
    for point in found.curve:
        numbers = [f"{100 * v:.2f}" for v in (point.ece, point.accuracy, point.conf)]
        table.add_row(
            f"{point.decay:.3g}", f"{point.nll:.4f} ± {point.nll_sd:.4f}", *numbers, f"{100 * point.gap:+.2f}",
            style="bold" if point.decay == found.decay else None,
        )  # fmt: skip
    console.print(table)
    console.print(f"\nChosen: [bold]{found.decay:.3g}[/] (base {found.base:.3g}): {found.note}.", highlight=False)


def _show_sweep(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("where", "decay", "accuracy %", "ECE %", "floor %", "confidence %", "gap %", "NLL"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row["which"], f"{row['decay']:.3g}",
            f"{100 * row['accuracy']:.2f} ± {100 * row['accuracy_sd']:.2f}",
            f"{100 * row['ece']:.2f} ± {100 * row['ece_sd']:.2f}",
            f"{100 * row['ece_floor']:.2f}", f"{100 * row['conf']:.2f}", f"{100 * row['gap']:+.2f}", f"{row['nll']:.3f}",
        )  # fmt: skip
    Console().print(table)
