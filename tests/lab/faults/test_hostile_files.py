"""Files made to break the readers: each ends in an error that names the file, before memory is taken."""

from __future__ import annotations

import io
import pickle
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

import graphcal
from graphcal.files import MEMORY, allowed_memory, read_at_most, read_text
from graphcal.lab.datasets._raw import read_planetoid, unpickle

NODES = 150


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = sp.random(NODES, 10, density=0.3, format="csr", random_state=0, dtype=np.float32)
    return {
        "edge_index": rng.integers(0, NODES, (2, 400)).astype("i4"), "feat_data": x.data, "feat_indices": x.indices,
        "feat_indptr": x.indptr, "feat_shape": np.array(x.shape), "labels": (np.arange(NODES) % 3).astype("i2"),
        "train": np.arange(0, 50), "val": np.arange(50, 100), "test": np.arange(100, 150),
    }  # fmt: skip


def with_entry(at: int, value: int) -> Callable[[np.ndarray], np.ndarray]:
    def changed(values: np.ndarray) -> np.ndarray:
        values = values.astype(np.int64)
        values[at] = value
        return values

    return changed


HOSTILE: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray], str]] = {
    "index far out": ("feat_indices", with_entry(5, 100_000), r"feat_indices, entry 6: 100000 is not in 0\.\.9"),
    "index one out": ("feat_indices", with_entry(5, 10), "feat_indices, entry 6"),
    "index negative": ("feat_indices", with_entry(5, -1), "feat_indices, entry 6: -1"),
    "pointer far out": ("feat_indptr", with_entry(7, 100_000), "feat_indptr, entry 8: 100000"),
    "pointer back": ("feat_indptr", with_entry(7, 0), "feat_indptr, row 7: ends before it begins"),
    "label 2**29": ("labels", with_entry(5, 2**29), "labels, row 6: class 536870912 of 150 nodes"),
    "negative split id": ("test", with_entry(0, -150), "test, entry 1: -150"),
    "overlap": ("test", with_entry(0, 3), "row 4 is in 'train' and in 'test'"),
    "edge out": ("edge_index", lambda e: np.where(e == e[0, 3], NODES, e), "has an end outside"),
    "fifty million labels": ("labels", lambda _: np.zeros(50_000_000, "i1"), "may fill at most"),
    "2**40 columns": ("feat_shape", lambda _: np.array([NODES, 2**40]), "1,099,511,627,776 columns"),
    "labels as text": ("labels", lambda y: y.astype(str), "labels must be a list of whole numbers"),
    "complex features": ("feat_data", lambda x: x.astype(complex), "feat_data must be a list of numbers"),
    "infinite as float32": ("feat_data", lambda x: np.where(x == x[3], 1e300, x.astype(float)), "not finite"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_npz(case: str, tmp_path: Path) -> None:
    key, change, message = HOSTILE[case]
    parts = arrays()
    np.savez_compressed(tmp_path / "graph.npz", **{**parts, key: change(parts[key])})
    with pytest.raises(ValueError, match=message) as refused:
        graphcal.lab.read(tmp_path / "graph.npz")
    assert str(tmp_path / "graph.npz") in str(refused.value)


def test_a_wide_empty_matrix_stays_sparse(tmp_path: Path) -> None:
    """4 kB that would be 2 GB as a dense matrix."""
    np.savez_compressed(tmp_path / "wide.npz", **{**arrays(), "feat_shape": np.array([NODES, 3_500_000])})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert graphcal.lab.read(tmp_path / "wide.npz").x.layout == torch.sparse_csr
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_an_array_that_announces_more_than_it_has(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "graph.npz", "w") as archive:
        archive.writestr("labels.npy", header.getvalue())
    with pytest.raises(ValueError, match=r"graph\.npz: not a readable .*announces shape \(1000000000000,\)"):
        graphcal.lab.read(tmp_path / "graph.npz")


def saved_data(**changes: Any) -> Data:
    k = torch.arange(60)
    parts = {
        "x": torch.rand(60, 4), "edge_index": torch.stack([k, k * 7 % 60]), "y": k % 3,
        "train_mask": k < 20, "val_mask": (k >= 20) & (k < 40), "test_mask": k >= 40,
    }  # fmt: skip
    return Data(**{**parts, **changes})


def bad_sparse() -> torch.Tensor:
    x = torch.rand(60, 4).to_sparse_csr()
    columns = x.col_indices().clone()
    columns[5] = 2**20
    return torch.sparse_csr_tensor(x.crow_indices(), columns, x.values(), x.shape, check_invariants=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": bad_sparse()}, r"x_indices, entry 6: 1048576 is not in 0\.\.3"),
        ({"x": torch.rand(60, 4).to_sparse()}, "expected a plain one, or CSR"),
        ({"x": torch.zeros(1).expand(60, 2**33)}, "may fill at most"),
        ({"y": torch.zeros(1, dtype=torch.long).expand(2**40)}, "may fill at most"),
        ({"y": (torch.arange(60) % 3) * 2**29}, "labels, row 3: class"),
        ({"train_mask": torch.ones(60, dtype=torch.bool)}, "is in 'train' and in"),
        ({"train_mask": torch.arange(60)}, "train_mask must be boolean"),
        ({"x": torch.rand(60)}, r"x has shape \(60,\)"),
    ],
)
def test_pt(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    torch.save(saved_data(**changes), tmp_path / "graph.pt")
    with pytest.raises(ValueError, match=message) as refused:
        graphcal.lab.read(tmp_path / "graph.pt")
    assert str(tmp_path / "graph.pt") in str(refused.value)


def test_a_pt_file_of_old_torch_is_refused(tmp_path: Path) -> None:
    """Its sizes are announced inside a pickle, where they cannot be checked beforehand."""
    torch.save(saved_data(), tmp_path / "graph.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match=r"since torch 1\.6"):
        graphcal.lab.read(tmp_path / "graph.pt")


def tables(folder: Path, nodes: str | bytes, edges: str = "source,target\na,b\n") -> Path:
    (folder / "nodes.csv").write_bytes(nodes if isinstance(nodes, bytes) else nodes.encode())
    (folder / "edges.csv").write_text(edges)
    return folder


ROWS = "a,0,1\nb,1,1\nc,0,2\nd,1,2\ne,0,1\nf,1,1\n"


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("id,label,x,x\na,0,1,1\nb,1,1,1\n", "two columns are called 'x'"),
        ("id,label,é\n".encode("latin-1") + ROWS.encode(), "not UTF-8"),
        (f"id,label,x\n{ROWS}".encode("utf-16"), "not UTF-8"),
        ("id,label,features\na,0,3:1 4000000000\nb,1,1\n", "row 1: word number 4000000000"),
        (f"id,label,x\n{ROWS}g,0\n", "Expected 3 columns, got 2"),
    ],
)
def test_csv(nodes: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        graphcal.lab.read(tables(tmp_path, nodes))
    assert "nodes.csv" in str(refused.value)


def test_a_comma_inside_a_quoted_column_name(tmp_path: Path) -> None:
    assert graphcal.lab.read(tables(tmp_path, f'id,label,"x,y"\n{ROWS}')).x.shape == (6, 1)


def test_a_folder_in_the_place_of_a_table_and_a_strange_delimiter(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a delimiter is one character"):
        graphcal.lab.read(tables(tmp_path, f"id,label,x\n{ROWS}"), delimiter="ab")
    (tmp_path / "nodes.csv").unlink()
    (tmp_path / "nodes.csv").mkdir()
    with pytest.raises(ValueError, match=r"nodes\.csv is a folder"):
        graphcal.lab.read(tmp_path)


def test_parquet_word_numbers_do_not_wrap(tmp_path: Path) -> None:
    pq.write_table(pa.table({"source": [1, 2], "target": [2, 3]}), tmp_path / "edges.parquet")
    columns = {"id": list(range(12)), "label": [0, 1] * 6, "features": [[2**31 + 1]] * 12}
    pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    with pytest.raises(ValueError, match="row 1: word number 2147483649"):
        graphcal.lab.read(tmp_path)


def test_parquet_runs_of_equal_values_are_counted(tmp_path: Path) -> None:
    nodes = {"id": list(range(12)), "label": [0, 1] * 6, "x": [1.0] * 12}
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    ends = pa.array(np.zeros(20_000_000, "i4"))
    pq.write_table(pa.table({"source": ends, "target": ends}), tmp_path / "edges.parquet")
    assert (tmp_path / "edges.parquet").stat().st_size < 10**6
    with pytest.raises(ValueError, match=r"edges\.parquet: its 20,000,000 rows would take"):
        graphcal.lab.read(tmp_path)


def test_long_texts_repeated_are_counted(tmp_path: Path) -> None:
    """One text of 100 kB, named by 20,000 rows: 2 GB when each row has its own."""
    labels = pa.DictionaryArray.from_arrays(np.zeros(20_000, "i4"), pa.array(["a" * 10**5]))
    nodes = {"id": np.arange(20_000), "label": labels, "x": np.ones(20_000)}
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet", store_schema=False)
    pq.write_table(pa.table({"source": [1, 2], "target": [2, 3]}), tmp_path / "edges.parquet")
    with pytest.raises(ValueError, match=r"nodes\.parquet: .*would take"):
        graphcal.lab.read(tmp_path)


def evil_array(code: str, raw: bytes) -> bytes:
    reconstruct = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    dtype = b"cnumpy\ndtype\n(S'" + code.encode() + b"'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntb"
    return reconstruct + b"(I1\n(I4\nt" + dtype + b"I00\nS" + repr(raw)[1:].encode() + b"\ntb."


@pytest.mark.parametrize("code", ["O8", "V8", "O", "U8", "S8", "f8,O8"])
def test_an_array_of_objects_is_never_made_from_bytes(code: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match="refused: an array of"):
        unpickle(evil_array(code, b"A" * 32))
    assert unpickle(evil_array("i8", b"A" * 32)).shape == (4,)


def test_planetoid_faults_are_named() -> None:
    from planetoid_small import planetoid_files

    sound = planetoid_files()
    for part in sound.keys() - {"x", "test.index"}:  # x is not read; half a list of numbers is one
        for broken in (b"", b"\x80", sound[part][: len(sound[part]) // 2], b"<html>log in</html>"):
            with pytest.raises(ValueError, match="Planetoid"):
                read_planetoid({**sound, part: broken}.__getitem__)
    with pytest.raises(ValueError, match=r"test\.index names nodes"):
        read_planetoid({**sound, "test.index": b"5\n4\n1000000000000\n"}.__getitem__)
    huge = pickle.dumps([1, 2])[:-1] + b"r\xff\xff\xff\x7f."  # LONG_BINPUT: remember it as number 2**31 - 1
    with pytest.raises(ValueError, match="LONG_BINPUT 2147483647"):
        read_planetoid({**sound, "graph": huge}.__getitem__)


def test_limits_count_what_a_file_may_fill(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x")
    with open(large, "wb") as file:
        file.truncate(10 * MEMORY // 256)
    assert allowed_memory(small) == MEMORY
    assert allowed_memory(large) == 10 * MEMORY // 256 * 256
    with pytest.raises(ValueError, match="this holds more than 3 bytes"):
        read_at_most(io.BytesIO(b"four"), 3, "this")
    small.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"small: not UTF-8 text .*at byte 0"):
        read_text(small)
