"""What DATASET means on the command line, the name of a known graph or a path to one's own, and what --columns means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_geometric.data import Data


COLUMNS = ("id", "label", "split", "source", "target", "sparse", "values")


def graph_of(
    dataset: str,
    protocol: str = "",
    labels_per_class: int = 20,
    split: int = 0,
    columns: str = "",
    delimiter: str = ",",
) -> Data:
    """``columns`` and ``delimiter`` tell how one's own tables are written: "id=paper,label=topic"."""
    from graphcal import datasets

    is_path = Path(dataset).name != dataset or Path(dataset).suffix in (".npz", ".pt", ".pth")
    if is_path and not Path(dataset).exists():
        raise ValueError(f"{dataset}: no such file or folder; `graphcal datasets` lists the graphs that have a name")
    if dataset in datasets.NAMES or not Path(dataset).exists():
        return datasets.load(dataset, protocol or None, labels_per_class, split)
    return datasets.read(dataset, **_columns(columns), delimiter=delimiter)


def _columns(text: str) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        what, _, name = (p.strip() for p in part.partition("="))
        if what == "features" and name:
            chosen["feature_columns"] = name.split("+")
        elif what in COLUMNS and name:
            chosen[f"{what}_column"] = name
        else:
            raise ValueError(
                f"--columns understands WHAT=NAME, WHAT among {', '.join(COLUMNS)}, features (features=a+b+c); got {part!r}"
            )
    return chosen


def column_names(text: str) -> dict[str, str]:
    """Roles and the names of the columns that have them."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        role, mark, name = part.partition("=")
        if not mark or not name.strip():
            raise ValueError(f"--columns must look like id=paper,label=topic; got {part!r}")
        found[role.strip()] = name.strip()
    return found
