"""Your own files: every way to write a graph, and an error of its own for every way to write it wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data

from graphcal.datasets import load, read
from graphcal.datasets.arrays import load_npz, save_npz

IDS = ["a", "b", "c", "d", "e", "f", "g", "h"]
LABELS = ["red", "blue", "red", "blue", "red", "blue", "red", None]
SPLIT = ["train", "train", "val", "val", "test", "TEST", "valid", None]
SOURCE, TARGET = ["a", "b", "c", "d", "h", "a", "b"], ["b", "a", "b", "e", "a", "a", "c"]
EDGES = [[0, 0, 1, 1, 2, 3, 4, 7], [1, 7, 0, 2, 1, 4, 3, 0]]

Change = Callable[[dict[str, Any], dict[str, Any]], None]


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


def test_a_missing_split_is_made_and_said(tmp_path: Path) -> None:
    nodes, edges = tables()
    del nodes["split"]
    folder = write(tmp_path, nodes, edges, "parquet")
    data, again, other = read(folder), read(folder), [read(folder, seed=seed) for seed in range(1, 6)]
    assert "no split given: 60/20/20 stratified by class, seed 0" in data.notes
    assert data.protocol == "stratified 60/20/20, seed 0"
    parts = data.train_mask.int() + data.val_mask.int() + data.test_mask.int()
    assert parts.tolist() == [1] * 7 + [0]
    assert set(data.y[data.train_mask].tolist()) == {0, 1}
    assert torch.equal(data.train_mask, again.train_mask)
    assert any(not torch.equal(data.train_mask, one.train_mask) for one in other)


def test_the_npz_layout(tmp_path: Path, shared_data: Path) -> None:
    data, known = read(shared_data / "chameleon.npz"), load("chameleon", row_normalise=False)
    assert torch.equal(data.x, known.x)
    assert torch.equal(data.edge_index, known.edge_index)
    assert torch.equal(data.y, known.y)
    assert torch.equal(data.test_mask, known.test_mask)
    assert data.notes == ["split 0 of 10 is used"]
    assert data.source == str(shared_data / "chameleon.npz")


def test_unlabelled_nodes_of_the_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    import graphcal.datasets

    data = read(Path(graphcal.datasets.__file__).parent / "data" / "citeseer.npz")
    assert int((data.y < 0).sum()) == 15
    assert int(data.test_mask.sum()) == 1000


def test_a_saved_data(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", *tables(), "parquet")
    data = read(folder)
    plain = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    for part in ("train", "val", "test"):
        plain[f"{part}_mask"] = data[f"{part}_mask"]
    torch.save(plain, tmp_path / "mine.pt")
    again = read(tmp_path / "mine.pt")
    for key in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(again[key], data[key])
    many = plain.clone()
    for part in ("train", "val", "test"):
        many[f"{part}_mask"] = torch.stack([plain[f"{part}_mask"]] * 3, 1)
    torch.save(many, tmp_path / "many.pt")
    assert read(tmp_path / "many.pt").notes == ["split 0 of 3 is used"]


class Trap:
    """Code that must not run when a file is opened."""

    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


def test_saved_data_cannot_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(Data(x=torch.ones(2, 2), trap=Trap()), tmp_path / "trap.pt")
    with pytest.raises(ValueError, match=r"trap\.pt: cannot be opened safely"):
        read(tmp_path / "trap.pt")
    assert not (tmp_path / "exploded").exists()


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


def test_text_in_one_csv_cell(tmp_path: Path) -> None:
    folder = write(tmp_path, *tables(), "csv")
    text = (folder / "nodes.csv").read_text().replace(",7,", ",seven,")
    (folder / "nodes.csv").write_text(text)
    with pytest.raises(ValueError, match=r"nodes\.csv, column 'age', row 7: features are numbers, but here is 'seven'"):
        read(folder)


def test_wrong_delimiter(tmp_path: Path) -> None:
    folder = write(tmp_path, *tables(), "csv", ";")
    with pytest.raises(ValueError, match=r"nodes\.csv: wrong delimiter: the header .* pass delimiter=';'"):
        read(folder)


def test_ragged_csv(tmp_path: Path) -> None:
    folder = write(tmp_path, *tables(), "csv")
    with open(folder / "edges.csv", "a") as file:
        file.write("a,b,c\n")
    with pytest.raises(ValueError, match=r"edges\.csv: .*Expected 2 columns, got 3"):
        read(folder)


@pytest.mark.parametrize("stem", ["nodes", "edges"])
def test_empty_files(tmp_path: Path, stem: str) -> None:
    folder = write(tmp_path, *tables(), "csv")
    header = (folder / f"{stem}.csv").read_text().splitlines()[0]
    (folder / f"{stem}.csv").write_text(header + "\n")
    with pytest.raises(ValueError, match=rf"{stem}\.csv: the file is empty: it has a header and no rows"):
        read(folder)
    (folder / f"{stem}.csv").write_text("")
    with pytest.raises(ValueError, match=rf"{stem}\.csv: the file is empty"):
        read(folder)


def test_paths_that_are_no_graph(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        read(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"expected nodes\.parquet or nodes\.csv; neither is there"):
        read(tmp_path)
    (tmp_path / "graph.txt").write_text("0 1")
    with pytest.raises(ValueError, match=r"choose a \.npz file, a \.pt file"):
        read(tmp_path / "graph.txt")
    (tmp_path / "graph.npz").write_text("")
    with pytest.raises(ValueError, match="the file is empty"):
        read(tmp_path / "graph.npz")
    np.savez(tmp_path / "other.npz", weights=np.ones(3))
    with pytest.raises(ValueError, match=r"keys missing: edge_index, .*; found: weights"):
        read(tmp_path / "other.npz")
    torch.save({"x": torch.ones(2)}, tmp_path / "dict.pt")
    with pytest.raises(ValueError, match=r"holds a dict, expected a torch_geometric\.data\.Data"):
        read(tmp_path / "dict.pt")
    torch.save(Data(x=torch.ones(2, 2)), tmp_path / "bare.pt")
    with pytest.raises(ValueError, match=r"has no tensor edge_index, y; it has x"):
        read(tmp_path / "bare.pt")


def test_faults_of_arrays(tmp_path: Path) -> None:
    import graphcal.datasets

    graph = load_npz(Path(graphcal.datasets.__file__).parent / "data" / "citeseer.npz")
    graph.features.data[graph.features.indptr[7]] = np.nan
    save_npz(tmp_path / "nan.npz", graph)
    with pytest.raises(ValueError, match=r"nan\.npz: features, row 8: nan is not finite"):
        read(tmp_path / "nan.npz")
    graph.features.data[graph.features.indptr[7]] = 1
    graph.edge_index[1, 41] = 5000
    save_npz(tmp_path / "far.npz", graph)
    with pytest.raises(ValueError, match=r"edge_index, edge 42: \(\d+, 5000\) has an end outside 0\.\.3326"):
        read(tmp_path / "far.npz")
    x = torch.ones(4, 2)
    x[2, 1] = torch.inf
    torch.save(Data(x=x, edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 0, 1, 1])), tmp_path / "inf.pt")
    with pytest.raises(ValueError, match=r"inf\.pt: x, row 3: a feature is not finite"):
        read(tmp_path / "inf.pt")


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
