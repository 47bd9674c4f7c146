"""Features as lists, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_graph import tables, write

from graphcal.lab.datasets import read


@pytest.mark.parametrize(
    ("kind", "lists"),
    [
        ("parquet", {"features": [[0, 2], [1], [], [2, 2], None, [0], [0], [0]]}),
        ("csv", {"features": ["0 2", "1:1", "", "2:2", None, " 0 ", "0:1.0", "0"]}),
        (
            "parquet",
            {
                "features": [[0, 2], [1], [], [2], None, [0], [0], [0]],
                "values": [[1.0, 1.0], [1.0], [], [2.0], None, [1.0], [1.0], [1.0]],
            },
        ),
        (
            "parquet",
            {"features": [[1.0, 0, 1], [0.0, 1, 0], [0.0] * 3, [0.0, 0, 2], [0.0] * 3, *[[1.0, 0, 0]] * 3]},
        ),
    ],
    ids=["word lists", "text", "words and values", "dense lists"],
)
def test_features_as_lists(tmp_path: Path, kind: str, lists: dict[str, Any]) -> None:
    nodes, edges = tables()
    nodes = {key: nodes[key] for key in ("id", "label", "split")} | lists
    data = read(write(tmp_path, nodes, edges, kind))
    expected = [[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 2], [0, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert data.x.tolist() == expected


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"features": [[0], [1], [-2], [0], [0], [0], [0], [0]]}, r"row 3: -2 is not a word number"),
        ({"features": [[1.0], [1.0, 2.0], *[[1.0]] * 6]}, r"row 2: 2 numbers, but row 1 has 1"),
        ({"features": [[1.0], [1.0], [np.nan], *[[1.0]] * 5]}, r"row 3: nan is not a finite feature"),
        ({"features": [[1]] * 8, "values": [[1.0], [1.0, 2.0], *[[1.0]] * 6]}, r"'values', row 2: 2 values for 1"),
        ({"features": ["0:1", "0:x", *["1"] * 6]}, r"column 'features': expected text such as"),
        ({"features": list(range(8))}, r"column 'features': expected lists or text"),
    ],
)
def test_faults_of_lists(tmp_path: Path, lists: dict[str, Any], message: str) -> None:
    nodes, edges = tables()
    nodes = {key: nodes[key] for key in ("id", "label", "split")} | lists
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path, nodes, edges, "parquet"))


def test_text_in_one_csv_cell(tmp_path: Path) -> None:
    folder = write(tmp_path, *tables(), "csv")
    text = (folder / "nodes.csv").read_text().replace(",7,", ",seven,")
    (folder / "nodes.csv").write_text(text)
    with pytest.raises(ValueError, match=r"nodes\.csv, column 'age', row 7: features are numbers, but here is 'seven'"):
        read(folder)
