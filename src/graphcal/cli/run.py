"""``graphcal run``: a real graph -> train -> calibrate -> a table in the terminal and a page to look at."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphcal.cli.graph_argument import graph_of
from graphcal.cli.progress import ProgressBar

if TYPE_CHECKING:
    from graphcal.pipeline import Results


def run(
    dataset: str = typer.Argument(
        "citeseer", help="A dataset name (see `graphcal datasets`) or a path to your own graph."
    ),
    backbone: str = typer.Option(
        "gcn", help="The model to train: gcn, gat, sage, appnp, sgc, gcnii, fagcn, jknet, gpn or mlp."
    ),
    calibrator: str = typer.Option(
        "ts,scar,graph-scaling-keep,graph-scaling",
        help="Calibrators to compare, separated by commas (see `graphcal methods`).",
    ),
    seeds: int = typer.Option(10, min=1, help="How many times to train, with seeds 0, 1, 2, ...; all train together."),
    labels_per_class: int = typer.Option(
        20, min=1, help="Training labels for each class, where the protocol has a choice."
    ),
    protocol: str = typer.Option(
        "", help="Which split: public, cagcn, per-class, gats, geom-gcn, random (default: the graph's own)."
    ),
    split: int = typer.Option(0, min=0, help="Number of the split, where a protocol has several."),
    final_weight_decay: float = typer.Option(
        None, min=0.0, help="Weight decay of the final layer: SCAR's class-centroid level. Default: that of all layers."
    ),
    columns: str = typer.Option(
        "",
        help="Your tables' column names, where they differ: id=paper,label=topic,source=from,target=to,features=a+b.",
    ),
    delimiter: str = typer.Option(",", help="What separates the columns of your CSV files."),
    out: Path = typer.Option(
        Path("graphcal-report"),
        help="Folder for report.html, results.json, calibrated.parquet and calibrator.safetensors.",
    ),
    json: bool = typer.Option(False, "--json", help="Print the results as JSON instead of the table."),
) -> None:
    """Show how honest a model's confidence is on a graph, and how much calibration repairs.

    Trains BACKBONE on DATASET, fits each calibrator on the validation nodes and measures on the test nodes:

    graphcal run                                  # a GCN on Citeseer, ten seeds, about a minute
    graphcal run cora --calibrator ts,graph-scaling,gats
    graphcal run my-graph/ --backbone sage        # nodes.csv + edges.csv
    """
    from rich.console import Console

    console = Console(stderr=True)
    data = graph_of(dataset, protocol, labels_per_class, split, columns, delimiter)
    for note in data.get("notes", []):
        console.print(note, style="dim", highlight=False, markup=False)
    from graphcal.files import check_writable
    from graphcal.pipeline import run as run_pipeline

    check_writable(out)
    with ProgressBar(console) as report:
        results = run_pipeline(
            data,
            backbone,
            [name.strip() for name in calibrator.split(",") if name.strip()],
            range(seeds),
            labels_per_class,
            split=split,
            final_weight_decay=final_weight_decay,
            progress=report,
        )
    record = results.record
    record["command"] = "graphcal " + " ".join(sys.argv[1:])
    try:
        page: Path | None = results.save(out)
    except OSError as fault:  # what was computed is shown, whatever became of the disk
        page, lost = None, fault
    if json:
        typer.echo(json_format.dumps(record))
    else:
        show_results(results, page)
    if page is None:
        raise ValueError(f"the results could not be written to {out}: {lost.strerror or lost}")


def show_results(results: Results, page: Path | None) -> None:
    """The table, the verdict and where the files are."""
    from rich.console import Console
    from rich.markup import escape

    from graphcal.cli.results_table import results_table

    record = results.record
    console = Console()
    nodes, seeds = record["nodes"], len(record["seeds"])
    of_a_table = record["backbone"] == "predictions"
    split = f"split {record['protocol']}" if of_a_table else f"{record['protocol']} split"
    console.print(
        f"[bold]{escape(record['backbone'])}[/] on [bold]{escape(record['dataset'])}[/], {escape(split)}: "
        f"{nodes['train']:,} training, {nodes['val']:,} validation, {nodes['test']:,} test nodes; "
        f"{seeds} seed{'s' * (seeds > 1)}, {record['bins']} bins"
    )
    console.print(results_table(record, console.width))
    console.print(f"\n{results.verdict}", highlight=False, markup=False)
    console.print(results.recommended, highlight=False, markup=False)
    console.print(
        f"[dim]{'Mean ± sd over seeds. ' * (seeds > 1)}ECE: mean gap between confidence and accuracy; true error: the error "
        "behind its noise, with its 95 % interval. Floor: the ECE a perfectly calibrated model would show on "
        f"{nodes['test']:,} nodes.[/]"
    )
    if results.decision is not None:
        console.print(f"[bold]{escape(results.decision)}[/]", highlight=False)
    if page is not None:
        folder = page.parent
        written = {
            "Report": page,
            "Numbers": folder / "results.json",
            "Calibrated predictions": folder / "calibrated.parquet",
            "Calibrator": folder / "calibrator.safetensors",
            "Decide next": f"graphcal decide {folder} --certify 0.5",
        }
        for what, where in written.items():
            console.print(f"{what}: {where}", markup=False, highlight=False, soft_wrap=True)  # a path is never broken
