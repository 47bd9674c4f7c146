"""``graphcal run``: train a model on a graph, calibrate it, and report how far its confidence can be trusted."""

from __future__ import annotations

from pathlib import Path

import typer

from graphcal.cli.completion import complete_calibrators
from graphcal.cli.console import plain_console
from graphcal.cli.progress import ProgressBar
from graphcal.cli.results_table import save_and_show
from graphcal.lab.cli import arguments


def run(
    dataset: str = arguments.DATASET,
    backbone: str = arguments.BACKBONE,
    calibrator: str = typer.Option(
        "ts,scar,graph-scaling-keep,graph-scaling",
        metavar="NAME,...",
        show_default="ts, scar, graph-scaling-keep, graph-scaling",
        autocompletion=complete_calibrators,
        help="Calibrators to compare, separated by commas (see `graphcal methods`).",
    ),
    seeds: int = typer.Option(
        10, min=1, metavar="N", help="How many times to train, with seeds 0, 1, 2, ...; all train together."
    ),
    labels_per_class: int = arguments.LABELS_PER_CLASS,
    protocol: str = arguments.PROTOCOL,
    split: int = arguments.SPLIT,
    final_weight_decay: float = typer.Option(
        None,
        min=0.0,
        metavar="NUMBER",
        help="Weight decay of the final layer: SCAR's class-centroid level. Default: that of all layers.",
    ),
    columns: str = arguments.GRAPH_COLUMNS,
    delimiter: str = arguments.DELIMITER,
    out: Path = typer.Option(
        Path("graphcal-report"),
        metavar="FOLDER",
        help="Folder for report.html, results.json, calibrated.parquet and calibrator.safetensors.",
    ),
    json: bool = typer.Option(False, "--json", metavar="", help="Print the results as JSON instead of the table."),
) -> None:
    """Train a model on a graph, calibrate it and write a report.

    Trains BACKBONE on DATASET, fits each calibrator on the validation nodes and measures on the test nodes:

    graphcal run                            # a GCN on Citeseer, 10 seeds, a minute
    graphcal run cora --calibrator ts,graph-scaling,gats
    graphcal run my-graph/ --backbone sage  # nodes.csv + edges.csv
    """
    console = plain_console(stderr=True)
    data = arguments.graph_of(dataset, protocol, labels_per_class, split, columns, delimiter)
    from graphcal.files import check_writable
    from graphcal.lab.pipeline import run as run_pipeline

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
    save_and_show(results, out, json)
