"""A small graph of a user's own, as two tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

IDS = ["a", "b", "c", "d", "e", "f", "g", "h"]
LABELS = ["red", "blue", "red", "blue", "red", "blue", "red", None]
SPLIT = ["train", "train", "val", "val", "test", "TEST", "valid", None]
SOURCE, TARGET = ["a", "b", "c", "d", "h", "a", "b"], ["b", "a", "b", "e", "a", "a", "c"]
EDGES = [[0, 0, 1, 1, 2, 3, 4, 7], [1, 7, 0, 2, 1, 4, 3, 0]]


def tables() -> tuple[dict[str, Any], dict[str, Any]]:
    """Eight nodes with text ids and labels, one of them without a label; edges in one direction and a self loop."""
    nodes = {"id": IDS, "label": LABELS, "split": SPLIT, "age": [1, 2, 3, 4, 5, 6, 7, 8], "size": [0.5] * 8}
    return nodes, {"source": SOURCE, "target": TARGET}


def write(folder: Path, nodes: dict[str, Any], edges: dict[str, Any], kind: str, delimiter: str = ",") -> Path:
    folder.mkdir(exist_ok=True)
    for stem, columns in (("nodes", nodes), ("edges", edges)):
        if kind == "parquet":
            pq.write_table(pa.table(columns), folder / f"{stem}.parquet")
        else:
            options = pyarrow.csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
            pyarrow.csv.write_csv(pa.table(columns), folder / f"{stem}.csv", options)
    return folder
