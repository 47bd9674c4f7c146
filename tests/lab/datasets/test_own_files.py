"""Your own files: arrays, saved graphs, and paths that are neither."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from own_graph import tables, write
from torch_geometric.data import Data

from graphcal.lab.datasets import load, read
from graphcal.lab.datasets.arrays import load_npz, save_npz


def test_the_npz_layout(tmp_path: Path, shared_data: Path) -> None:
    data, expected = read(shared_data / "chameleon.npz"), load("chameleon", row_normalise=False)
    assert torch.equal(data.x, expected.x)
    assert torch.equal(data.edge_index, expected.edge_index)
    assert torch.equal(data.y, expected.y)
    assert torch.equal(data.test_mask, expected.test_mask)
    assert data.notes == ["split 0 of 10 is used"]
    assert data.source == str(shared_data / "chameleon.npz")


def test_unlabelled_nodes_of_the_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    import graphcal.lab.datasets

    data = read(Path(graphcal.lab.datasets.__file__).parent / "data" / "citeseer.npz")
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
    import graphcal.lab.datasets

    graph = load_npz(Path(graphcal.lab.datasets.__file__).parent / "data" / "citeseer.npz")
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
