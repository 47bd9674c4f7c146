"""``graphcal calibrate``: calibrate a table of predictions, and report the result."""

from __future__ import annotations

from pathlib import Path

import typer

from graphcal.cli.arguments import CLASSES, KIND, SOURCE, TABLE_COLUMNS, column_names
from graphcal.cli.completion import complete_calibrators
from graphcal.cli.results_table import save_and_show


def calibrate(
    predictions: Path = typer.Argument(
        ..., help="Table of predictions: Parquet, CSV, Arrow or npz; a file or a folder of shards."
    ),
    labels: Path = typer.Option(
        None, metavar="FILE", help="Table with columns id and label, and optionally split (default: in PREDICTIONS)."
    ),
    edges: Path = typer.Option(
        None, metavar="FILE", help="Table of edges, src and dst by id. Enables graph-aware calibrators."
    ),
    final_layer: Path = typer.Option(
        None, metavar="FILE", help="Safetensors file with weight and bias of the last layer. Enables SCAR."
    ),
    calibrator: str = typer.Option(
        "auto",
        metavar="NAME,...",
        autocompletion=complete_calibrators,
        help="Calibrators to compare, separated by commas. The chosen one is saved.",
    ),
    kind: str = KIND,
    classes: str = CLASSES,
    source: str = SOURCE,
    split: str = typer.Option(
        None,
        metavar="COLUMN|FILE",
        help="Column of train/val/test, or a file of ids (default: column `split`, else a random split).",
    ),
    columns: str = TABLE_COLUMNS,
    layout: str = typer.Option(
        None, metavar="NAME", help="wide, list, long, top-label or binary, if the columns allow several."
    ),
    seed: int = typer.Option(0, min=0, metavar="N", help="Seed of the random split, if no split is given."),
    out: Path = typer.Option(
        Path("graphcal-calibrated"),
        metavar="FOLDER",
        help="Folder for the report, the calibrator and the calibrated predictions.",
    ),
    json: bool = typer.Option(False, "--json", metavar="", help="Print the results as JSON instead of the table."),
) -> None:
    """Calibrate a table of predictions from any framework.

    Fits on validation rows, measures on test rows, and writes calibrated.parquet (same rows, added columns),
    calibrator.safetensors (for `graphcal score`), report.html and results.json:

    graphcal calibrate predictions.parquet --out out/
    graphcal calibrate preds/ --labels labels.parquet --edges edges.parquet
    graphcal calibrate scores.csv --kind logits --calibrator ts,isotonic
    """
    from graphcal.calibrate_table import calibrate_files
    from graphcal.files import check_writable
    from graphcal.tables.reading import read_table

    names = column_names(columns)
    check_writable(out)
    table = read_table(predictions, kind, layout, classes, labels, names, split, source)
    calibrators = [name.strip() for name in calibrator.split(",") if name.strip()]
    results = calibrate_files(table, edges, final_layer, calibrators, seed, names)
    save_and_show(results, out, json)
