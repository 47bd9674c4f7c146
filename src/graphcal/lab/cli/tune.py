"""``graphcal tune``: which weight decay should the final layer have?"""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphcal.cli.arguments import JSON
from graphcal.cli.completion import complete_calibrator
from graphcal.cli.console import plain_console, print_line
from graphcal.lab.cli import arguments

if TYPE_CHECKING:
    from graphcal.lab.tuning import DecaySearch


def tune(
    dataset: str = arguments.DATASET,
    backbone: str = arguments.BACKBONE,
    search: str = typer.Option("bisection", metavar="NAME", help="bisection (of the validation gap) or grid."),
    criterion: str = typer.Option(
        "nll", metavar="METRIC", help="What a grid minimises on the validation nodes: nll or ece."
    ),
    after: str = typer.Option(
        "",
        metavar="NAME",
        autocompletion=complete_calibrator,
        help="Judge each decay after this calibrator, e.g. ts or graph-scaling.",
    ),
    decays: str = typer.Option(
        "", metavar="A,B,...", help="The grid, or the two ends of the bisection, separated by commas."
    ),
    sweep: str = typer.Option(
        "", metavar="WHICH", help="Only look: sweep the decay of final, global, others (commas), or both."
    ),
    seeds: int = typer.Option(3, min=1, metavar="N", help="Seeds for each decay; all train together."),
    labels_per_class: int = arguments.LABELS_PER_CLASS,
    protocol: str = arguments.PROTOCOL,
    split: int = arguments.SPLIT,
    columns: str = arguments.GRAPH_COLUMNS,
    delimiter: str = arguments.DELIMITER,
    picture: Path = typer.Option(None, metavar="FILE", help="Draw the curve to this file (svg, png or pdf)."),
    json: bool = JSON,
) -> None:
    """Choose the weight decay of the final layer on validation nodes (SCAR's class-centroid level).

    graphcal tune citeseer
    graphcal tune cora --search grid --after ts      # worth it after TS too?
    graphcal tune cora --sweep both --picture f.svg  # final against global
    """
    from graphcal.lab.tuning import PAPER_DECAYS, sweep_decay, tune_decay
    from graphcal.methods import CALIBRATORS

    recipe = CALIBRATORS[after]() if after else None
    data = arguments.graph_of(dataset, protocol, labels_per_class, split, columns, delimiter)
    decay_values = _numbers(decays)
    result: Any
    if sweep:
        which = [name.strip() for name in sweep.split(",")]
        places = which[0] if len(which) == 1 else which
        result = sweep_decay(data, backbone, decays=decay_values or PAPER_DECAYS, seeds=range(seeds), which=places)
    else:
        result = tune_decay(data, backbone, None, decay_values, range(seeds), search, criterion, recipe)
    if json:
        typer.echo(json_format.dumps({"schema": 1, "sweep": result} if sweep else {"schema": 1, **result.to_dict()}))
    elif sweep:
        _show_sweep(result)
    else:
        _show_search(result, f"{backbone} on {dataset}")
    if picture is not None:
        from graphcal.lab.plots.tuning import save_decay_picture

        save_decay_picture(result, picture)
        print_line(f"Picture: {picture}", stderr=True)


def _numbers(text: str) -> list[float] | None:
    try:
        return [float(part) for part in text.split(",")] if text else None
    except ValueError:
        raise ValueError(f"--decays takes numbers separated by commas, such as 5e-4,5e-5; got {text!r}") from None


def _show_search(result: DecaySearch, title: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from graphcal.metrics.names import METRICS

    console = plain_console()
    table = Table(box=None, pad_edge=False, header_style="bold", title=f"{title}: validation nodes")
    columns = [METRICS[key] for key in ("nll", "ece", "accuracy", "confidence", "signed_gap")]
    for name in ("final decay", *(metric.heading for metric in columns)):
        table.add_column(name, justify="right")
    for point in result.curve:
        cells = [metric.text(getattr(point.scores, metric.key), sign=metric.best == "zero") for metric in columns]
        cells[0] += f" ± {METRICS['nll'].text(point.nll_sd)}"
        table.add_row(f"{point.decay:.3g}", *cells, style="bold" if point.decay == result.decay else None)
    console.print(table)
    console.print(
        Text.assemble("\nChosen: ", (f"{result.decay:.3g}", "bold"), f" (base {result.base:.3g}): {result.note}.")
    )


def _show_sweep(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from graphcal.metrics.names import METRICS

    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = [METRICS[key] for key in ("accuracy", "ece", "ece_floor", "confidence", "signed_gap", "nll")]
    for name in ("where", "decay", *(metric.heading for metric in columns)):
        table.add_column(name, justify="right")
    for row in rows:
        cells = [m.text(row[m.key], 3 if m.key == "nll" else None, sign=m.best == "zero") for m in columns]
        for index, m in enumerate(columns):
            if f"{m.key}_sd" in row:
                cells[index] += f" ± {m.text(row[f'{m.key}_sd'])}"
        table.add_row(row["which"], f"{row['decay']:.3g}", *cells)
    plain_console().print(table)
