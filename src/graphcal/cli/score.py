"""``graphcal score``: a saved calibrator on predictions of any size."""

from __future__ import annotations

import json as json_format
from pathlib import Path

import typer

from graphcal.cli.arguments import SOURCE, calibrator_in, column_names
from graphcal.cli.console import plain_console, print_line


def score(
    calibrator: Path = typer.Argument(
        ..., help="calibrator.safetensors, or the folder in which `graphcal calibrate` wrote it."
    ),
    predictions: Path = typer.Argument(
        ..., help="Table of predictions: Parquet, CSV, Arrow or npz; a file or a folder of shards."
    ),
    out: Path = typer.Option(..., metavar="FOLDER", help="Folder for the calibrated shards and _score.json."),
    edges: Path = typer.Option(
        None, metavar="FILE", help="Table of edges, src and dst by id, for a graph-aware calibrator."
    ),
    train_ids: Path = typer.Option(
        None,
        metavar="FILE",
        help="Table of the ids the model was trained on, or of id and split, where the calibrator reads it.",
    ),
    kind: str = typer.Option(
        None, metavar="KIND", help="logits, log-probs or probs, where the calibrator does not know it."
    ),
    source: str = SOURCE,
    columns: str = typer.Option(
        "", metavar="ROLE=NAME,...", help="Your columns' names, where they differ: id=paper or scores=pred."
    ),
    keep_scores: bool = typer.Option(False, metavar="", help="Write the scores as well, beside the calibrated ones."),
    engine: str = typer.Option("local", metavar="NAME", help="local (threads) or ray."),
    workers: int = typer.Option(0, min=0, metavar="N", help="How many at once (default: one per core)."),
    address: str = typer.Option(
        None, metavar="ADDRESS", help="Address of a Ray cluster; without it, a local one for this command."
    ),
    json: bool = typer.Option(False, "--json", metavar="", help="Print _score.json instead of sentences."),
) -> None:
    """Apply a saved calibrator to new predictions. Resumes after interruption.

    Reads batches and writes whole files only. Rows, order, ids and other columns stay; scores become calibrated ones:

    graphcal score out/calibrator.safetensors all-predictions/ --out scored/
    graphcal score out/calibrator.safetensors preds/ --engine ray --out scored/
    """
    from graphcal.cli.progress import ProgressBar
    from graphcal.metrics.references import drift_text
    from graphcal.tables.scoring import score as score_table

    with ProgressBar(plain_console(stderr=True)) as report:
        summary = score_table(
            calibrator_in(calibrator), predictions, out, edges, train_ids, kind, source, column_names(columns), keep_scores,
            engine, workers, address, report,
        )  # fmt: skip
    if json:
        typer.echo(json_format.dumps(summary))
        return
    kept = f", {summary['kept']:,} of them kept from before" if summary["kept"] else ""
    print_line(f"{summary['rows']:,} rows in {summary['files']:,} file{'s' * (summary['files'] > 1)}{kept}: {out}")
    for note in summary.get("notes", ()):
        print_line(note, stderr=True)
    if "drift" in summary:
        print_line(drift_text(summary["drift"]))
