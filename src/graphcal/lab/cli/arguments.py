"""Arguments that several commands of the laboratory share. DATASET is the name of a graph or a path to your own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphcal.cli.arguments import column_names
from graphcal.cli.completion import matching
from graphcal.cli.console import plain_console
from graphcal.plugins import announced

if TYPE_CHECKING:
    from torch_geometric.data import Data

BACKBONES = ("gcn", "gat", "sage", "appnp", "sgc", "gcnii", "fagcn", "jknet", "gpn", "mlp")


def complete_dataset(incomplete: str) -> list[str]:
    from graphcal.lab.datasets.catalog import NAMES

    return matching(incomplete, NAMES)


def complete_protocol(incomplete: str) -> list[str]:
    from graphcal.lab.datasets.protocols import PROTOCOLS

    return matching(incomplete, PROTOCOLS)


def complete_backbone(incomplete: str) -> list[str]:
    return matching(incomplete, [*BACKBONES, *announced("backbone")])


def complete_preset(incomplete: str) -> list[str]:
    from graphcal.lab.bench.presets import preset_titles

    return matching(incomplete, ["list", "status", "archive", "audit", *preset_titles()])


ROLES = ("id", "label", "split", "source", "target", "sparse", "values")

DATASET: Any = typer.Argument(
    "citeseer",
    autocompletion=complete_dataset,
    help="A dataset name (see `graphcal datasets`) or a path to your own graph.",
)
BACKBONE: Any = typer.Option(
    "gcn",
    metavar="NAME",
    autocompletion=complete_backbone,
    help=f"The model to train: {', '.join(BACKBONES[:-1])} or {BACKBONES[-1]}.",
)
LABELS_PER_CLASS: Any = typer.Option(
    20, min=1, metavar="N", help="Training labels for each class, where the protocol has a choice."
)
PROTOCOL: Any = typer.Option(
    "",
    metavar="NAME",
    autocompletion=complete_protocol,
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
    from graphcal.lab import datasets

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
    """Return the column arguments of `graphcal.lab.datasets.read`."""
    arguments: dict[str, Any] = {}
    for role, name in column_names(text).items():
        if role != "features" and role not in ROLES:
            raise ValueError(
                f"--columns understands WHAT=NAME, WHAT among {', '.join(ROLES)}, features (features=a+b+c); got {role!r}"
            )
        arguments |= {"feature_columns": name.split("+")} if role == "features" else {f"{role}_column": name}
    return arguments
