"""A graph as plain arrays, and the `.npz` layout that stores one.

    edge_index                     2 x E int32, both directions, sorted, no repeats, no self loops
    feat_data, feat_indices,       node features as the parts of a scipy CSR matrix, values as in the source
    feat_indptr, feat_shape
    labels                         N class ids; -1 where a node has none
    train, val, test               index arrays of one split, or
    train_masks, val_masks,        bool, one row for each split
    test_masks
    self_loops, no_label           optional: nodes whose self loop was dropped, nodes without a label

Nothing is pickled: files open with `allow_pickle=False`.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphcal.files import atomic_file

SPLIT_KEYS = ("train", "val", "test", "train_masks", "val_masks", "test_masks", "no_label", "self_loops")
_NEEDED = ("edge_index", "feat_data", "feat_indices", "feat_indptr", "feat_shape", "labels")


@dataclass(frozen=True)
class GraphArrays:
    """A graph before it becomes tensors."""

    edge_index: np.ndarray  # (2, E)
    features: sp.csr_matrix  # (N, D) float32
    labels: np.ndarray  # (N,)
    splits: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        return int(self.labels.shape[0])

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1

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


def load_npz(path: str | os.PathLike[str]) -> GraphArrays:
    """Open a file of the layout above."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            parts = {key: archive[key] for key in archive.files if key in (*_NEEDED, *SPLIT_KEYS)}
            found = ", ".join(archive.files) or "none"
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as fault:
        raise ValueError(f"{os.fspath(path)}: not a readable .npz file of plain arrays ({fault})") from fault
    missing = [key for key in _NEEDED if key not in parts]
    if missing:
        raise ValueError(
            f"{os.fspath(path)}: not a graph of the documented .npz layout, keys missing: {', '.join(missing)}; "
            f"found: {found}"
        )
    shape = tuple(int(n) for n in parts["feat_shape"])
    features = sp.csr_matrix((parts["feat_data"], parts["feat_indices"], parts["feat_indptr"]), shape=shape)
    splits = {key: parts[key] for key in SPLIT_KEYS if key in parts}
    return GraphArrays(parts["edge_index"], features, parts["labels"].astype(np.int64), splits)


def save_npz(path: Path, graph: GraphArrays) -> None:
    """Write the layout above; the file appears whole or not at all."""
    parts: dict[str, Any] = {
        "edge_index": graph.edge_index.astype(np.int32),
        "feat_data": graph.features.data.astype(np.float32),
        "feat_indices": graph.features.indices.astype(np.int32),
        "feat_indptr": graph.features.indptr.astype(np.int32),
        "feat_shape": np.asarray(graph.features.shape, dtype=np.int64),
        "labels": graph.labels.astype(np.int16),
        **graph.splits,
    }
    with atomic_file(path) as file:
        np.savez_compressed(file, **parts)


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
