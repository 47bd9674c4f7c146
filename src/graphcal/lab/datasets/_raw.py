"""The raw files of published graphs, in the formats their authors ship.

    read_benchmark      Shchur et al. and CoraFull: .npz with the CSR parts `adj_*`, `attr_*`, and `labels`
    read_heterophilous  Platonov et al.: .npz with `node_features`, `node_labels`, `edges`, `*_masks`
    read_arxiv_year     OGB's arxiv.zip: gzipped CSV; classes are five year buckets

Arxiv-year (LINKX, arXiv:2110.14446): class k holds the years in [q_k, q_{k+1}), q_k the k/5 quantile of all years.

Departures: PyG sets every feature of the first format to 0 or 1; here the values stay as shipped (protocol `gats` asks
for 0/1). Edges are made undirected everywhere, also arxiv-year's citations.

Planetoid's own files (`ind.NAME.*`), read without trusting them.

The files are pickles of 2016. A pickle can run any code, so they are opened with an unpickler that knows five names
(numpy arrays and their dtype, scipy's CSR matrix, `defaultdict`, `list`) and refuses every other. For numpy's and scipy's names
it has stand-ins that only keep what they are given: an array is made by us, from bytes, after its size and type were checked.

    allx, ally   features and labels of all nodes outside the test block      x, y   the training rows among them
    tx, ty       the test rows, in the order of test.index                    graph  {node: [neighbours]}

The public split: train = the rows of y, val = the 500 that follow, test = test.index.
Yang, Cohen & Salakhutdinov 2016, arXiv:1603.08861.

Departures: Citeseer's test block has 15 ids that have no row: no features and no label. They become nodes with empty
features and label 0, as in every public loader, are listed in `no_label`, and are in no mask. They are often called
isolated; in the `graph` file each has one or two edges, which are kept (48 other nodes are isolated).
"""

from __future__ import annotations

import collections
import gzip
import io
import pickle
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import scipy.sparse as sp

from graphcal.files import allowed_memory, check_archive, check_regular, file_errors, read_at_most
from graphcal.lab.datasets.arrays import (
    GraphArrays,
    check_classes,
    check_csr,
    check_edge_index,
    check_splits,
    require_arrays,
    undirected,
)  # fmt: skip

PARTS = ("allx", "ally", "graph", "test.index", "tx", "ty", "x", "y")
PLAIN = ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")


class _DType:
    """Stands in for numpy's dtype: a plain number type by its code, or nothing."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or code not in PLAIN:
            raise pickle.UnpicklingError(f"refused: an array of {code!r}, but Planetoid's are of {', '.join(PLAIN)}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple) and state[1:2] == (">",):
            self.dtype = self.dtype.newbyteorder(">")


class _Array:
    """Stands in for numpy's array: its shape, its type and its bytes."""

    def __init__(self, *_: Any) -> None:
        self.array = np.empty(0)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state
        raw = raw.encode("latin1") if isinstance(raw, str) else raw  # Python 2 had no bytes
        if not isinstance(kind, _DType) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("refused: an array without a plain type or without bytes")
        self.array = np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if fortran else "C")


class _CSRState:
    """Stands in for scipy's CSR matrix: receives the state."""

    state: dict[str, Any]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.state = state

    def matrix(self) -> sp.csr_matrix:
        parts = {f"csr_{key}": self.state[key].array for key in ("data", "indices", "indptr")}
        shape = self.state["_shape"] if "_shape" in self.state else self.state["shape"]
        return check_csr({**parts, "csr_shape": np.array(shape)}, "csr", "a Planetoid file")


class RestrictedUnpickler(pickle.Unpickler):
    """Resolves the names Planetoid's files use and no other."""

    def find_class(self, module: str, name: str) -> Any:
        allowed: dict[tuple[str, str], Any] = {
            ("numpy", "ndarray"): _Array,
            ("numpy", "dtype"): _DType,
            ("numpy.core.multiarray", "_reconstruct"): _Array,
            ("numpy._core.multiarray", "_reconstruct"): _Array,
            ("scipy.sparse.csr", "csr_matrix"): _CSRState,
            ("scipy.sparse._csr", "csr_matrix"): _CSRState,
            ("collections", "defaultdict"): collections.defaultdict,
            ("__builtin__", "list"): list,
            ("builtins", "list"): list,
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"refused: the file asks for {module}.{name}, which no Planetoid file needs")
        return allowed[module, name]


def _check_opcodes(raw: bytes) -> None:
    """Every argument lies within the file; nothing is remembered under a number that would make room for millions."""
    for opcode, argument, _ in pickletools.genops(raw):
        if "PUT" in opcode.name and argument is not None and not 0 <= argument <= len(raw):
            raise pickle.UnpicklingError(f"refused: {opcode.name} {argument} in a file of {len(raw)} bytes")


def unpickle(raw: bytes) -> Any:
    """One Planetoid pickle, with arrays and CSR matrices rebuilt."""
    _check_opcodes(raw)
    value = RestrictedUnpickler(io.BytesIO(raw), encoding="latin1").load()
    if isinstance(value, _CSRState):
        return value.matrix()
    return value.array if isinstance(value, _Array) else value


def read_planetoid(part: Callable[[str], bytes]) -> GraphArrays:
    """Build the graph; `part("allx")` returns the bytes of `ind.NAME.allx` and so on for each of PARTS."""
    with file_errors("Planetoid's files", "as published"):
        return _put_together(part)


def _put_together(part: Callable[[str], bytes]) -> GraphArrays:
    listed = np.array(part("test.index").split(), dtype=np.int64)
    allx, tx = unpickle(part("allx")), unpickle(part("tx"))
    ally, ty = unpickle(part("ally")), unpickle(part("ty"))
    train = len(unpickle(part("y")))
    first, nodes = int(listed.min()), int(listed.max()) + 1
    if first < 0 or nodes > 2 * (allx.shape[0] + len(listed)) or len(np.unique(listed)) != len(listed):
        raise ValueError(
            f"test.index names nodes {first}..{nodes - 1}, but there are {allx.shape[0]} + {len(listed)} rows"
        )
    if not train < first <= allx.shape[0]:
        raise ValueError(f"test.index begins at {first}, but y has {train} rows and allx {allx.shape[0]}")

    # Row i of tx belongs to node listed[i]; ids of the block that are not listed keep an empty row.
    permutation = sp.csr_matrix(
        (np.ones(len(listed)), (listed - first, np.arange(len(listed)))), (nodes - first, len(listed))
    )
    features = sp.vstack([allx[:first], permutation @ tx]).tocsr().astype(np.float32)
    features.eliminate_zeros()
    features.sort_indices()
    one_hot = np.zeros((nodes, ally.shape[1]), dtype=ally.dtype)
    one_hot[:first] = ally[:first]
    one_hot[listed] = ty

    graph: dict[int, list[int]] = unpickle(part("graph"))
    rows = np.repeat(np.fromiter(graph, dtype=np.int64), [len(near) for near in graph.values()])
    columns = np.fromiter((j for near in graph.values() for j in near), dtype=np.int64, count=len(rows))
    check_edge_index(np.stack([rows, columns]), nodes, "graph")
    splits = {
        "train": np.arange(train, dtype=np.int32),
        "val": np.arange(train, min(train + 500, first), dtype=np.int32),
        "test": np.sort(listed).astype(np.int32),
        "no_label": np.flatnonzero(one_hot.sum(1) == 0).astype(np.int32),
        "self_loops": np.unique(rows[rows == columns]).astype(np.int32),
    }
    return GraphArrays(undirected(rows, columns, nodes), features, one_hot.argmax(1).astype(np.int64), splits)


_CSR = ("data", "indices", "indptr", "shape")
_MASKS = ("train_masks", "val_masks", "test_masks")


def _tidy(features: sp.csr_matrix) -> sp.csr_matrix:
    features = sp.csr_matrix(features, dtype=np.float32)
    features.sum_duplicates()
    features.eliminate_zeros()
    return features


def _loops(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return np.unique(rows[rows == columns]).astype(np.int32)


def read_benchmark(path: Path) -> GraphArrays:
    """computers, photo, cs, physics, corafull."""
    parts = require_arrays(path, (*(f"{matrix}_{part}" for matrix in ("adj", "attr") for part in _CSR), "labels"))
    labels = check_classes(parts["labels"], path)
    adj, attr = check_csr(parts, "adj", path), check_csr(parts, "attr", path)
    if adj.shape != (len(labels), len(labels)) or attr.shape[0] != len(labels):
        raise ValueError(f"{path}: {len(labels)} labels for edges {adj.shape} and features {attr.shape}")
    edges = adj.tocoo()
    splits = {"self_loops": _loops(edges.row, edges.col)}
    return GraphArrays(undirected(edges.row, edges.col, len(labels)), _tidy(attr), labels, splits)


def read_heterophilous(path: Path) -> GraphArrays:
    """chameleon, squirrel and their filtered versions."""
    parts = require_arrays(path, ("edges", "node_labels", "node_features", *_MASKS))
    labels, features = check_classes(parts["node_labels"], path), parts["node_features"]
    if features.ndim != 2 or len(features) != len(labels) or features.dtype.kind not in "fiub":
        raise ValueError(
            f"{path}: node_features has shape {features.shape} of {features.dtype} for {len(labels)} nodes"
        )
    splits = {key: parts[key].astype(bool) for key in _MASKS}
    check_splits(splits, len(labels), path)
    rows, columns = check_edge_index(parts["edges"].T, len(labels), path)
    splits["self_loops"] = _loops(rows, columns)
    return GraphArrays(
        undirected(rows, columns, len(labels)), _tidy(sp.csr_matrix(features.astype(np.float32))), labels, splits
    )


def year_buckets(years: np.ndarray, classes: int = 5) -> np.ndarray:
    """Class of each paper: the quantile interval, closed below and open above, its year falls in."""
    edges = np.quantile(years, np.arange(1, classes) / classes)
    return np.searchsorted(edges, years, side="right").astype(np.int64)


def read_arxiv_year(path: Path) -> GraphArrays:
    """OGB's raw archive of ogbn-arxiv."""
    check_regular(path)
    with file_errors(path, "OGB's archive of ogbn-arxiv"):
        with zipfile.ZipFile(path) as archive:
            check_archive(path, archive)
            edges = _table(archive, "arxiv/raw/edge.csv.gz", allowed_memory(path))
            years = _table(archive, "arxiv/raw/node_year.csv.gz", allowed_memory(path)).column(0).to_numpy()
            columns = _table(archive, "arxiv/raw/node-feat.csv.gz", allowed_memory(path)).columns
        features = np.empty((len(years), len(columns)), dtype=np.float32)
        for k, column in enumerate(columns):
            features[:, k] = column.to_numpy()
        rows, cols = edges.column(0).to_numpy(), edges.column(1).to_numpy()
        check_edge_index(np.stack([rows, cols]), len(years), path)
        splits = {"self_loops": _loops(rows, cols)}
        return GraphArrays(undirected(rows, cols, len(years)), _tidy(features), year_buckets(years), splits)


def _table(archive: zipfile.ZipFile, member: str, allowed: int) -> pa.Table:
    """A gzipped CSV without header."""
    with archive.open(member) as packed, gzip.GzipFile(fileobj=packed) as unpacked:
        text = read_at_most(unpacked, allowed, member)  # type: ignore[arg-type]
    options = pyarrow.csv.ReadOptions(autogenerate_column_names=True)
    return pyarrow.csv.read_csv(io.BytesIO(text), read_options=options)
