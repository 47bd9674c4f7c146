"""``graphcal calibrate``: predictions of any framework -> calibrated predictions, their calibrator, a report."""

from __future__ import annotations

from pathlib import Path

import typer

from graphcal.cli.arguments import CLASSES, KIND, SOURCE, TABLE_COLUMNS, column_names
from graphcal.cli.completion import complete_calibrators


def calibrate(
    predictions: Path = typer.Argument(
        ..., help="Table of predictions: Parquet, CSV, Arrow or npz; a file or a folder of shards."
    ),
    labels: Path = typer.Option(
        None, metavar="FILE", help="Table of id and label, with a split if it likes (default: in PREDICTIONS)."
    ),
    edges: Path = typer.Option(
        None, metavar="FILE", help="Table of edges, src and dst by id: opens the graph-aware calibrators."
    ),
    final_layer: Path = typer.Option(
        None, metavar="FILE", help="Safetensors file with weight and bias of the last layer: opens SCAR."
    ),
    calibrator: str = typer.Option(
        "auto",
        metavar="NAME,...",
        autocompletion=complete_calibrators,
        help="Calibrators to compare, separated by commas; the predictions of the chosen one are written.",
    ),
    kind: str = KIND,
    classes: str = CLASSES,
    source: str = SOURCE,
    split: str = typer.Option(
        None, metavar="COLUMN|FILE", help="Column of train/val/test, or a file of ids (default: `split`, else a draw)."
    ),
    columns: str = TABLE_COLUMNS,
    layout: str = typer.Option(
        None, metavar="NAME", help="wide, list, long, top-label or binary, where two are possible."
    ),
    seed: int = typer.Option(0, min=0, metavar="N", help="Seed of the draw, where no split is given."),
    bins: int = typer.Option(20, min=1, metavar="N", help="Equal-width bins (lo, hi], 0 and 1 included."),
    out: Path = typer.Option(Path("graphcal-calibrated"), metavar="FOLDER", help="Folder for what is written."),
    json: bool = typer.Option(False, "--json", metavar="", help="Print the results as JSON instead of the table."),
) -> None:
    """Calibrate predictions that are already there: any framework, any of five layouts.

    Fits on the rows whose split is val, measures on those of test, and writes calibrated.parquet (same rows, added columns),
    calibrator.safetensors (for `graphcal score`), report.html and results.json:

    graphcal calibrate predictions.parquet --out out/
    graphcal calibrate preds/ --labels labels.parquet --edges edges.parquet
    graphcal calibrate scores.csv --kind logits --calibrator ts,isotonic
    """

    from graphcal.files import check_writable
    from graphcal.lab.cli.run import save_and_show
    from graphcal.pipeline import calibrate_files
    from graphcal.tables.reading import read_table

    names = column_names(columns)
    check_writable(out)
    table = read_table(predictions, kind, layout, classes, labels, names, split, source)
    calibrators = [name.strip() for name in calibrator.split(",") if name.strip()]
    results = calibrate_files(table, edges, final_layer, calibrators, seed, bins, names)
    save_and_show(results, out, json)
