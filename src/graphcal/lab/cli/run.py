"""``graphcal run``: a real graph -> train -> calibrate -> a table in the terminal and a page to look at.

The table is as wide as the terminal allows: columns are left out, numbers are never cut.
"""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphcal.cli.completion import complete_calibrators
from graphcal.cli.console import plain_console
from graphcal.cli.progress import ProgressBar
from graphcal.lab.cli import arguments

if TYPE_CHECKING:
    from rich.table import Table

    from graphcal.results import Results


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
    """Show how honest a model's confidence is on a graph, and how much calibration repairs.

    Trains BACKBONE on DATASET, fits each calibrator on the validation nodes and measures on the test nodes:

    graphcal run                            # a GCN on Citeseer, 10 seeds, a minute
    graphcal run cora --calibrator ts,graph-scaling,gats
    graphcal run my-graph/ --backbone sage  # nodes.csv + edges.csv
    """

    console = plain_console(stderr=True)
    data = arguments.graph_of(dataset, protocol, labels_per_class, split, columns, delimiter)
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
    save_and_show(results, out, json)


def save_and_show(results: Results, out: Path, json: bool) -> None:
    """Save the results, then print them; where they cannot be saved they are printed all the same."""
    results.record["command"] = "graphcal " + " ".join(sys.argv[1:])
    try:
        page: Path | None = results.save(out)
    except (OSError, ValueError) as fault:
        page, lost = None, fault
    console = plain_console(stderr=True)
    for note in results.record.get("notes", []):
        console.print(note, style="dim")
    if json:
        typer.echo(json_format.dumps(results.record))
    else:
        show_results(results, page)
    if page is None:
        raise ValueError(f"the results could not be written to {out}: {getattr(lost, 'strerror', None) or lost}")


def show_results(results: Results, page: Path | None) -> None:
    """The table, the verdict and where the files are."""
    from rich.text import Text

    record = results.record
    console = plain_console()
    nodes, seeds = record["nodes"], len(record["seeds"])
    of_a_table = record["backbone"] == "predictions"
    split = f"split {record['protocol']}" if of_a_table else f"{record['protocol']} split"
    facts = (
        f", {split}: {nodes['train']:,} training, {nodes['val']:,} validation, {nodes['test']:,} test nodes; "
        f"{'' if of_a_table else f'{seeds} seed' + 's' * (seeds > 1) + ', '}{record['bins']} bins"
    )
    console.print(Text.assemble((record["backbone"], "bold"), " on ", (record["dataset"], "bold"), facts))
    console.print(results_table(record, console.width))
    console.print(f"\n{results.verdict}")
    console.print(results.choice)
    console.print(
        f"{'Mean ± sd over seeds. ' * (seeds > 1)}ECE: mean gap between confidence and accuracy; true error: the error "
        "behind its noise, with its 95 % interval. Floor: the ECE a perfectly calibrated model would show on "
        f"{nodes['test']:,} nodes.",
        style="dim",
    )
    if results.decision is not None:
        console.print(results.decision, style="bold")
    if page is not None:
        folder, unlabelled = page.parent, of_a_table and record["map"]["of"] > sum(nodes.values())
        written = {
            "Report": page,
            "Numbers": folder / "results.json",
            "Calibrated predictions": folder / "calibrated.parquet",
            "Calibrator": folder / "calibrator.safetensors",
            "Decide next": f"graphcal decide {folder}" + " --certify 0.5" * (not unlabelled),
        }
        for what, where in written.items():
            console.print(f"{what}: {where}", soft_wrap=True)  # a path is never broken


SPREAD = ("accuracy", "ece", "nll", "brier")  # shown with their standard deviation over seeds
DIGITS = {"nll": 3, "brier": 3, "true_error": 1}
# What is given up, in this order, until the table fits: a standard deviation (±) or a whole column.
GIVEN_UP = ("±brier", "±nll", "±accuracy", "brier", "±ece", "ece_floor", "accuracy", "true_error", "ece_interval")


def columns_of(record: dict[str, Any], width: int) -> dict[str, list[str]]:
    """Heading -> cells; the first column are the methods."""
    one_run = len(record["seeds"]) == 1
    left_out = {f"±{key}" for key in SPREAD} if one_run else set()
    columns = _columns(record, left_out)
    for step in GIVEN_UP:
        if _width(columns) <= width:
            break
        left_out.add(step)
        columns = _columns(record, left_out)
    return columns


def results_table(record: dict[str, Any], width: int) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    columns = columns_of(record, width)
    for place, heading in enumerate(columns):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for row in zip(*columns.values()):
        table.add_row(*row)
    return table


def _columns(record: dict[str, Any], left_out: set[str]) -> dict[str, list[str]]:
    methods = record["methods"]
    columns = {"method": ["uncalibrated" if name == "none" else name for name in methods]}
    for key in ("accuracy", "ece", "true_error", "ece_interval", "ece_floor", "nll", "brier"):
        if key not in left_out:
            cells = [_cell(method, key, key in SPREAD and f"±{key}" not in left_out) for method in methods.values()]
            columns[_heading(key)] = cells
    return columns


def _heading(key: str) -> str:
    from graphcal.metrics.names import METRICS  # torch is not imported for --help

    if key == "ece_interval":
        return "95 %"
    return METRICS[key].heading if key in ("accuracy", "ece") else METRICS[key].title


def _cell(method: dict[str, Any], key: str, spread: bool) -> str:
    from graphcal.metrics.names import METRICS

    if key == "ece_interval":
        low, high = method[key]
        return f"{100 * low:.1f}–{100 * high:.1f}"
    digits = DIGITS.get(key)
    if key == "true_error":
        return METRICS[key].text(method[key], digits)
    mean, sd = (METRICS[key].text(method[key][part], digits) for part in ("mean", "sd"))
    return f"{mean} ±{sd}" if spread else mean


def _width(columns: dict[str, list[str]]) -> int:
    return sum(max(map(len, [heading, *cells])) for heading, cells in columns.items()) + len(columns) - 1
