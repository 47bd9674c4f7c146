"""A graph as plain arrays, and the `.npz` layout that stores one.

    edge_index                     2 x E int32, both directions, sorted, no repeats, no self loops
    feat_data, feat_indices,       node features as the parts of a scipy CSR matrix, values as in the source
    feat_indptr, feat_shape
    labels                         N class ids; -1 where a node has none
    train, val, test               index arrays of one split, or
    train_masks, val_masks,        bool, one row for each split
    test_masks
    self_loops, no_label           optional: nodes whose self loop was dropped, nodes without a label

Nothing is pickled: files open with `allow_pickle=False`. Nothing is believed: announced sizes are held against the limits
in `files` before memory is taken, the parts of a CSR matrix against each other, ids and labels against the number of nodes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphcal.files import FEATURES, atomic_file
from graphcal.tables.array_files import read_arrays

SPLIT_KEYS = ("train", "val", "test", "train_masks", "val_masks", "test_masks", "no_label", "self_loops")
_NEEDED = ("edge_index", "feat_data", "feat_indices", "feat_indptr", "feat_shape", "labels")


@dataclass(frozen=True)
class GraphArrays:
    """A graph before it becomes tensors."""

    edge_index: np.ndarray  # (2, E)
    features: sp.csr_matrix  # (N, D) float32
    labels: np.ndarray  # (N,)
    splits: Mapping[str, np.ndarray] = field(default_factory=dict)
    named_classes: int = 0  # where the classes have names: their number; a class may have no node

    @property
    def num_nodes(self) -> int:
        return int(self.labels.shape[0])

    @property
    def num_classes(self) -> int:
        return max(self.named_classes, int(self.labels.max()) + 1)

    @property
    def labelled(self) -> np.ndarray:
        """(N,) bool: nodes that have a label in the source."""
        has_label = self.labels >= 0
        has_label[self.splits.get("no_label", np.empty(0, dtype=np.int64))] = False
        return has_label


def symmetrise(rows: np.ndarray, columns: np.ndarray, nodes: int) -> tuple[np.ndarray, list[str]]:
    """Both directions of every edge, sorted, (2, E) int64, and what had to be changed for it."""
    keys = rows.astype(np.int64)
    keys *= nodes
    keys += columns
    keys = keys[rows != columns]
    loops, given = len(rows) - len(keys), len(keys)
    keys = _distinct(keys)
    distinct = len(keys)
    keys = _distinct(np.concatenate([keys, keys % nodes * nodes + keys // nodes]))
    one_way = len(keys) - distinct
    notes = [f"{loops:,} self loops dropped"] if loops else []
    notes += [f"{given - distinct:,} repeated edges dropped"] if given > distinct else []
    notes += [f"{one_way:,} of {distinct:,} edges had one direction only; both are kept now"] if one_way else []
    edge_index = np.empty((2, len(keys)), dtype=np.int64)
    np.floor_divide(keys, nodes, out=edge_index[0])
    np.remainder(keys, nodes, out=edge_index[1])
    return edge_index, notes


def _distinct(keys: np.ndarray) -> np.ndarray:
    """The distinct keys, sorted; sorts its argument in place."""
    keys.sort()
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys


def undirected(rows: np.ndarray, columns: np.ndarray, nodes: int) -> np.ndarray:
    """Both directions of every edge, sorted, without repeats and self loops: (2, E) int32."""
    return symmetrise(rows, columns, nodes)[0].astype(np.int32)


def require_arrays(path: str | os.PathLike[str], wanted: Collection[str]) -> dict[str, np.ndarray]:
    """These arrays of an .npz file, all of them; others it has (objects, even) are not touched."""
    parts, names = read_arrays(path, wanted)
    missing = [key for key in wanted if key not in parts]
    if missing:
        raise ValueError(f"{os.fspath(path)}: keys missing: {', '.join(missing)}; found: {', '.join(names) or 'none'}")
    return {key: parts[key] for key in wanted}


def check_csr(parts: Mapping[str, np.ndarray], prefix: str, where: str | os.PathLike[str]) -> sp.csr_matrix:
    """The matrix whose parts are PREFIX_data, _indices, _indptr and _shape, its structure checked in full."""
    data, indices, pointers = (parts[f"{prefix}_{part}"] for part in ("data", "indices", "indptr"))
    shape = check_ids(parts[f"{prefix}_shape"], 2**62, where, f"{prefix}_shape")
    if len(shape) != 2:
        raise ValueError(f"{os.fspath(where)}: {prefix}_shape has {len(shape)} numbers, expected rows and columns")
    rows, columns = int(shape[0]), int(shape[1])
    if columns > FEATURES:
        raise ValueError(
            f"{os.fspath(where)}: {prefix}_shape announces {columns:,} columns; at most {FEATURES:,} are read"
        )
    if data.ndim != 1 or data.dtype.kind not in "fiub":
        raise ValueError(
            f"{os.fspath(where)}: {prefix}_data must be a list of numbers; got {data.shape} of {data.dtype}"
        )
    indices = check_ids(indices, columns, where, f"{prefix}_indices")
    pointers = check_ids(pointers, len(indices) + 1, where, f"{prefix}_indptr")
    pointers = (
        pointers.astype(np.int64) if pointers.dtype.kind == "u" else pointers
    )  # so that a step back is below zero
    if len(data) != len(indices) or len(pointers) != rows + 1 or pointers[0] != 0 or pointers[-1] != len(indices):
        raise ValueError(
            f"{os.fspath(where)}: {prefix}_data, _indices, _indptr are no CSR matrix of {rows} rows: "
            f"{len(data)}, {len(indices)} and {len(pointers)} entries"
        )
    if (np.diff(pointers) < 0).any():
        row = int((np.diff(pointers) < 0).argmax())
        raise ValueError(f"{os.fspath(where)}: {prefix}_indptr, row {row + 1}: ends before it begins")
    matrix = sp.csr_matrix((data, indices, pointers), shape=(rows, columns))
    matrix.check_format(full_check=True)
    return matrix


def check_ids(ids: np.ndarray, below: int, where: str | os.PathLike[str], name: str) -> np.ndarray:
    """A list of whole numbers 0..below-1, or an error that says which is not."""
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and len(ids)):
        raise ValueError(f"{os.fspath(where)}: {name} must be a list of whole numbers; got {ids.shape} of {ids.dtype}")
    if not len(ids):
        return ids.astype(np.int64)
    if int(ids.min()) < 0 or int(ids.max()) >= below:
        at = int(((ids < 0) | (ids >= below)).argmax())
        raise ValueError(f"{os.fspath(where)}: {name}, entry {at + 1}: {ids[at]} is not in 0..{below - 1}")
    return ids


def check_classes(labels: np.ndarray, where: str | os.PathLike[str]) -> np.ndarray:
    """(N,) int64 class numbers; below 0 means none. There are fewer classes than nodes, because every class needs two."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        raise ValueError(
            f"{os.fspath(where)}: labels must be a list of whole numbers; got {labels.shape} of {labels.dtype}"
        )
    if int(labels.max()) >= len(labels):
        row = int(labels.argmax())
        raise ValueError(
            f"{os.fspath(where)}: labels, row {row + 1}: class {labels[row]} of {len(labels)} nodes; classes are counted from 0, "
            "and every class needs at least two nodes"
        )
    return labels.astype(np.int64)


def check_splits(splits: Mapping[str, np.ndarray], nodes: int, where: str | os.PathLike[str]) -> None:
    """Ids are nodes, masks have a place for each of them."""
    for key, values in splits.items():
        if not key.endswith("_masks"):
            check_ids(values, nodes, where, key)
        elif values.ndim != 2 or values.shape[1] != nodes or not len(values) or values.dtype != np.bool_:
            raise ValueError(
                f"{os.fspath(where)}: {key} must be boolean, one row per split and {nodes} columns; got {values.shape} of "
                f"{values.dtype}"
            )
    counts = {key: len(splits[key]) for key in ("train_masks", "val_masks", "test_masks") if key in splits}
    if len(set(counts.values())) > 1:
        raise ValueError(f"{os.fspath(where)}: {', '.join(f'{key} has {n} rows' for key, n in counts.items())}")


def load_npz(path: str | os.PathLike[str]) -> GraphArrays:
    """Open a file of the layout above."""
    parts, names = read_arrays(path, (*_NEEDED, *SPLIT_KEYS))
    missing = [key for key in _NEEDED if key not in parts]
    if missing:
        raise ValueError(
            f"{os.fspath(path)}: not a graph of the documented .npz layout, keys missing: {', '.join(missing)}; "
            f"found: {', '.join(names) or 'none'}"
        )
    labels = check_classes(parts["labels"], path)
    features = check_csr(parts, "feat", path)
    if len(labels) != features.shape[0]:
        raise ValueError(f"{os.fspath(path)}: {len(labels)} labels for {features.shape[0]} rows of features")
    edge_index = check_edge_index(parts["edge_index"], len(labels), path)
    splits = {key: parts[key] for key in SPLIT_KEYS if key in parts}
    check_splits(splits, len(labels), path)
    return GraphArrays(edge_index, features, labels, splits)


def check_edge_index(edge_index: np.ndarray, nodes: int, where: str | os.PathLike[str]) -> np.ndarray:
    """(2, E) node numbers."""
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or (edge_index.dtype.kind not in "iu" and edge_index.size):
        raise ValueError(
            f"{os.fspath(where)}: edge_index has shape {edge_index.shape} of {edge_index.dtype}, expected (2, E) whole numbers"
        )
    wrong = np.flatnonzero(((edge_index < 0) | (edge_index >= nodes)).any(0))
    if len(wrong):
        edge = tuple(int(end) for end in edge_index[:, wrong[0]])
        raise ValueError(
            f"{os.fspath(where)}: edge_index, edge {wrong[0] + 1}: {edge} has an end outside 0..{nodes - 1}"
        )
    return edge_index if edge_index.dtype.kind == "i" else edge_index.astype(np.int64)


def save_npz(path: Path, graph: GraphArrays) -> None:
    """Write the layout above; the file appears whole or not at all."""
    with atomic_file(path) as file:
        np.savez_compressed(file, **npz_parts(graph))


def npz_parts(graph: GraphArrays) -> dict[str, Any]:
    """Arrays of the layout above, by key."""
    return {
        "edge_index": graph.edge_index.astype(np.int32),
        "feat_data": graph.features.data.astype(np.float32),
        "feat_indices": graph.features.indices.astype(np.int32),
        "feat_indptr": graph.features.indptr.astype(np.int32),
        "feat_shape": np.asarray(graph.features.shape, dtype=np.int64),
        "labels": graph.labels.astype(np.int16),
        **graph.splits,
    }


def digest(graph: GraphArrays) -> str:
    """SHA-256 of edges, features and labels, whatever file or compression they came in."""
    total = hashlib.sha256()
    for values, kind in (
        (graph.edge_index, np.int32),
        (graph.features.data, np.float32),
        (graph.features.indices, np.int32),
        (graph.features.indptr, np.int32),
        (graph.labels, np.int16),
    ):
        total.update(np.ascontiguousarray(values, dtype=kind).tobytes())
    return total.hexdigest()
