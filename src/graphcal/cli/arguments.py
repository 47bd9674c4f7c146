"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

# A table of predictions
KIND: Any = typer.Option(
    None, metavar="KIND", help="logits, log-probs or probs, where the columns' names do not say it."
)
CLASSES: Any = typer.Option(None, metavar="A,B,...", help="Class names in the order of the scores: spam,ham,news.")
SOURCE: Any = typer.Option(
    None, "--from", metavar="ENGINE", help="Engine that wrote the files: graphstorm, gigl, neo4j, kumo."
)
TABLE_COLUMNS: Any = typer.Option(
    "",
    "--columns",
    metavar="ROLE=NAME,...",
    help="Your columns' names, where they differ: id=paper,label=topic or scores=pred.",
)

LABELS: Any = typer.Option(
    None, metavar="FILE", help="Table with columns id and label, if the predictions hold no labels."
)
EDGES: Any = typer.Option(None, metavar="FILE", help="Table of edges, src and dst by id.")
INCLUSION: Any = typer.Option(
    "", metavar="COLUMN", help="Column of known probabilities with which rows were drawn for labelling."
)
RANDOM_DRAW: Any = typer.Option(
    False,
    "--random-draw",
    metavar="",
    help="Confirm that labelled rows are a simple random sample. Required for a guarantee.",
)
JSON: Any = typer.Option(False, "--json", metavar="", help="Print the result as JSON.")


def predictions_in(path: Path) -> Path:
    """The calibrated predictions in a folder that `graphcal run` or `graphcal calibrate` wrote; any other path as it is."""
    return _file_in(path, "calibrated.parquet")


def calibrator_in(path: Path) -> Path:
    """The calibrator in a folder that `graphcal run` or `graphcal calibrate` wrote; any other path as it is."""
    return _file_in(path, "calibrator.safetensors")


def _file_in(folder: Path, name: str) -> Path:
    """A file of a folder whose files belong to its results.json."""
    if not (folder / name).is_file():
        return folder
    from graphcal.records import check_folder

    check_folder(folder)
    return folder / name


def column_names(text: str) -> dict[str, str]:
    """Parse --columns: roles and the names of the columns that have them."""
    names = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        role, mark, name = (piece.strip() for piece in part.partition("="))
        if not mark or not name:
            raise ValueError(f"--columns must look like id=paper,label=topic; got {part!r}")
        names[role] = name
    return names
