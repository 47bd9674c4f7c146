"""Two tables: every way to write a graph, and an error of its own for every way to write it wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_graph import EDGES, IDS, SOURCE, TARGET, tables, write

from graphcal.lab.datasets import read

Change = Callable[[dict[str, Any], dict[str, Any]], None]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_tables(tmp_path: Path, kind: str) -> None:
    data = read(write(tmp_path / "mine", *tables(), kind))
    assert data.edge_index.tolist() == EDGES
    assert data.x.tolist() == [[k + 1.0, 0.5] for k in range(8)]
    assert data.y.tolist() == [1, 0, 1, 0, 1, 0, 1, -1]
    assert data.class_names == ["blue", "red"]
    assert list(data.node_ids) == IDS
    assert data.train_mask.nonzero().flatten().tolist() == [0, 1]
    assert data.val_mask.nonzero().flatten().tolist() == [2, 3, 6]
    assert data.test_mask.nonzero().flatten().tolist() == [4, 5]
    assert (data.num_classes, data.name, data.protocol) == (2, "mine", "as given in the file")
    assert data.notes == ["1 self loops dropped", "2 of 6 edges had one direction only; both are kept now"]


def test_columns_by_any_name_and_delimiter(tmp_path: Path) -> None:
    nodes, edges = tables()
    nodes = dict(zip(["key", "class", "part", "age", "size"], nodes.values()))
    edges = {"from": SOURCE, "to": TARGET, "weight": [1.0] * 7}
    data = read(
        write(tmp_path, nodes, edges, "csv", ";"),
        id_column="key",
        label_column="class",
        split_column="part",
        source_column="from",
        target_column="to",
        feature_columns=["size"],
        delimiter=";",
    )
    assert data.edge_index.tolist() == EDGES
    assert data.x.tolist() == [[0.5]] * 8
    assert data.notes[:2] == ["nodes.csv: columns not used: age", "edges.csv: columns not used: weight"]


def test_number_ids_and_labels(tmp_path: Path) -> None:
    nodes, edges = tables()
    numbers = {name: 100 - k for k, name in enumerate(IDS)}
    nodes |= {"id": list(numbers.values()), "label": [30, 7, 30, 7, 30, 7, 30, -1]}
    for kind in (int, str, float):  # ids may be numbers in one file and text in the other
        ends = {key: [kind(numbers[name]) for name in names] for key, names in edges.items()}
        data = read(write(tmp_path / kind.__name__, nodes, ends, "parquet"))
        assert data.edge_index.tolist() == EDGES
    assert data.y.tolist() == [1, 0, 1, 0, 1, 0, 1, -1]
    assert data.class_names == ["7", "30"], "sorted as numbers, not as text"
    assert data.node_ids.tolist() == list(numbers.values())


def faults() -> dict[str, tuple[Change, str]]:
    def put(table: int, column: str, row: int, value: Any) -> Change:
        def change(*both: dict[str, Any]) -> None:
            both[table][column] = [value if k == row - 1 else old for k, old in enumerate(both[table][column])]

        return change

    def drop(table: int, column: str) -> Change:
        return lambda *both: both[table].pop(column)

    def all_of(table: int, column: str, values: list[Any]) -> Change:
        return lambda *both: both[table].update({column: values})

    return {
        "unknown endpoint": (put(1, "target", 4, "zz"), r"edges\.\w+, column 'target', row 4: node 'zz' is not in"),
        "missing endpoint": (put(1, "source", 3, None), r"edges\.\w+, column 'source', row 3: there is no node id"),
        "duplicate node": (put(0, "id", 6, "b"), r"column 'id', row 6: node 'b' is there twice, first in row 2"),
        "missing id": (put(0, "id", 5, None), r"nodes\.\w+, column 'id', row 5: there is no node id"),
        "not a number": (put(0, "size", 3, float("nan")), r"column 'size', row 3: nan is not a finite feature"),
        "infinite": (put(0, "size", 8, float("-inf")), r"column 'size', row 8: -inf is not a finite feature"),
        "missing feature": (put(0, "age", 2, None), r"column 'age', row 2: the feature is missing"),
        "text feature": (
            all_of(0, "age", list("12345x78")),
            r"column 'age', row \d: features are numbers, but here is",
        ),
        "no label in training": (put(0, "label", 2, None), r"column 'label': row 2 is in 'train' but has no label"),
        "no label in test": (put(0, "split", 8, "test"), r"column 'label': row 8 is in 'test' but has no label"),
        "class not in training": (put(0, "split", 2, "test"), r"no training node has the label 'blue'"),
        "class with one label": (put(0, "label", 8, "green"), r"class 'green' has 1 label; every class needs"),
        "one class": (all_of(0, "label", ["red"] * 8), r"1 classes among the labels"),
        "decimal labels": (all_of(0, "label", [0.5, 1, 2, 3, 4, 5, 6, 7]), r"column 'label': labels are classes"),
        "strange split": (put(0, "split", 4, "hold-out"), r"column 'split', row 4: 'hold-out' is no part of a split"),
        "no validation": (all_of(0, "split", ["train"] * 4 + ["test"] * 3 + [None]), r"no node is in 'val'"),
        "no label column": (drop(0, "label"), r"nodes\.\w+: no column 'label'; its columns are id, split, age, size"),
        "no source column": (drop(1, "source"), r"edges\.\w+: no column 'source'; its columns are target"),
    }


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("fault", list(faults()))
def test_every_fault_has_its_own_error(tmp_path: Path, fault: str, kind: str) -> None:
    change, message = faults()[fault]
    nodes, edges = tables()
    change(nodes, edges)
    with pytest.raises(ValueError, match=message) as caught:
        read(write(tmp_path, nodes, edges, kind))
    assert str(tmp_path) in str(caught.value), "the error names the file"


@pytest.mark.slow
def test_a_large_graph_is_read_whole(tmp_path: Path) -> None:
    """100,000 nodes, 1,000,000 edges: a tenth of what benchmarks/data.py times."""
    rng = np.random.default_rng(0)
    nodes = {"id": np.arange(100_000), "label": rng.integers(5, size=100_000)}
    nodes |= {f"f{k}": rng.random(100_000, dtype=np.float32) for k in range(8)}
    ends = {key: rng.integers(100_000, size=1_000_000) for key in ("source", "target")}
    folder = write(tmp_path, nodes, ends, "parquet")
    data = read(folder)
    keys = np.unique(
        np.concatenate([ends["source"] * 100_000 + ends["target"], ends["target"] * 100_000 + ends["source"]])
    )
    assert data.edge_index.shape[1] == (keys // 100_000 != keys % 100_000).sum()
