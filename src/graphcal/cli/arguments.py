"""Arguments that several commands share, and what they mean: DATASET is the name of a known graph or a path to one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphcal.cli import completion
from graphcal.cli.console import plain_console

if TYPE_CHECKING:
    from torch_geometric.data import Data


ROLES = ("id", "label", "split", "source", "target", "sparse", "values")

# A graph to train on
DATASET: Any = typer.Argument(
    "citeseer",
    autocompletion=completion.complete_dataset,
    help="A dataset name (see `graphcal datasets`) or a path to your own graph.",
)
BACKBONE: Any = typer.Option(
    "gcn",
    metavar="NAME",
    autocompletion=completion.complete_backbone,
    help=f"The model to train: {', '.join(completion.BACKBONES[:-1])} or {completion.BACKBONES[-1]}.",
)
LABELS_PER_CLASS: Any = typer.Option(
    20, min=1, metavar="N", help="Training labels for each class, where the protocol has a choice."
)
PROTOCOL: Any = typer.Option(
    "",
    metavar="NAME",
    autocompletion=completion.complete_protocol,
    help="Which split: public, cagcn, per-class, gats, geom-gcn, random (default: the graph's own).",
)
SPLIT: Any = typer.Option(0, min=0, metavar="N", help="Number of the split, where a protocol has several.")
GRAPH_COLUMNS: Any = typer.Option(
    "",
    "--columns",
    metavar="ROLE=NAME,...",
    help="Your tables' column names, where they differ: id=paper,label=topic or source=from,target=to or features=a+b.",
)
DELIMITER: Any = typer.Option(",", metavar="CHAR", help="What separates the columns of your CSV files.")

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


def graph_of(
    dataset: str,
    protocol: str = "",
    labels_per_class: int = 20,
    split: int = 0,
    columns: str = "",
    delimiter: str = ",",
) -> Data:
    """``columns`` and ``delimiter`` tell how one's own tables are written: "id=paper,label=topic".

    What is noticed while they are read is said on the error stream.
    """

    from graphcal import datasets

    is_path = Path(dataset).name != dataset or Path(dataset).suffix in (".npz", ".pt", ".pth")
    if is_path and not Path(dataset).exists():
        raise ValueError(f"{dataset}: no such file or folder; `graphcal datasets` lists the graphs that have a name")
    if dataset in datasets.NAMES or not Path(dataset).exists():
        return datasets.load(dataset, protocol or None, labels_per_class, split)
    data = datasets.read(dataset, **_columns(columns), delimiter=delimiter)
    for note in data.get("notes", []):
        plain_console(stderr=True).print(note, style="dim")
    return data


def _columns(text: str) -> dict[str, Any]:
    """Return the column arguments of `graphcal.datasets.read`."""
    arguments: dict[str, Any] = {}
    for role, name in column_names(text).items():
        if role != "features" and role not in ROLES:
            raise ValueError(
                f"--columns understands WHAT=NAME, WHAT among {', '.join(ROLES)}, features (features=a+b+c); got {role!r}"
            )
        arguments |= {"feature_columns": name.split("+")} if role == "features" else {f"{role}_column": name}
    return arguments


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
    from graphcal.reports.records import check_folder

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
