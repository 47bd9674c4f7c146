"""Planetoid's own files (`ind.NAME.*`), read without trusting them.

The files are pickles of 2016. A pickle can run any code, so they are opened with an unpickler that knows five names
(numpy arrays and their dtype, scipy's CSR matrix, `defaultdict`, `list`) and refuses every other.

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
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphcal.datasets.arrays import GraphArrays, undirected

PARTS = ("allx", "ally", "graph", "test.index", "tx", "ty", "x", "y")


class _CSRState:
    """Stands in for scipy's CSR matrix while unpickling: only receives the state."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.data, self.indices, self.indptr = state["data"], state["indices"], state["indptr"]
        self.shape = state["_shape"] if "_shape" in state else state["shape"]


class RestrictedUnpickler(pickle.Unpickler):
    """Resolves the names Planetoid's files use and no other."""

    def find_class(self, module: str, name: str) -> Any:
        reconstruct = np.empty(0).__reduce__()[0]  # numpy's array constructor, wherever this version keeps it
        allowed: dict[tuple[str, str], Any] = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("numpy.core.multiarray", "_reconstruct"): reconstruct,
            ("numpy._core.multiarray", "_reconstruct"): reconstruct,
            ("scipy.sparse.csr", "csr_matrix"): _CSRState,
            ("scipy.sparse._csr", "csr_matrix"): _CSRState,
            ("collections", "defaultdict"): collections.defaultdict,
            ("__builtin__", "list"): list,
            ("builtins", "list"): list,
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"refused: the file asks for {module}.{name}, which no Planetoid file needs")
        return allowed[module, name]


def unpickle(raw: bytes) -> Any:
    """One Planetoid pickle, with CSR matrices rebuilt."""
    value = RestrictedUnpickler(io.BytesIO(raw), encoding="latin1").load()
    if isinstance(value, _CSRState):
        return sp.csr_matrix((value.data, value.indices, value.indptr), shape=value.shape)
    return value


def read_planetoid(part: Callable[[str], bytes]) -> GraphArrays:
    """Build the graph; `part("allx")` returns the bytes of `ind.NAME.allx` and so on for each of PARTS."""
    listed = np.array(part("test.index").split(), dtype=np.int64)
    allx, tx = unpickle(part("allx")), unpickle(part("tx"))
    ally, ty = unpickle(part("ally")), unpickle(part("ty"))
    train = len(unpickle(part("y")))
    first, nodes = int(listed.min()), int(listed.max()) + 1

    # Row i of tx belongs to node listed[i]; ids of the block that are not listed keep an empty row.
    place = sp.csr_matrix(
        (np.ones(len(listed)), (listed - first, np.arange(len(listed)))), (nodes - first, len(listed))
    )
    features = sp.vstack([allx[:first], place @ tx]).tocsr().astype(np.float32)
    features.eliminate_zeros()
    features.sort_indices()
    one_hot = np.zeros((nodes, ally.shape[1]), dtype=ally.dtype)
    one_hot[:first] = ally[:first]
    one_hot[listed] = ty

    graph: dict[int, list[int]] = unpickle(part("graph"))
    rows = np.repeat(np.fromiter(graph, dtype=np.int64), [len(near) for near in graph.values()])
    columns = np.fromiter((j for near in graph.values() for j in near), dtype=np.int64, count=len(rows))
    splits = {
        "train": np.arange(train, dtype=np.int32),
        "val": np.arange(train, train + 500, dtype=np.int32),
        "test": np.sort(listed).astype(np.int32),
        "no_label": np.flatnonzero(one_hot.sum(1) == 0).astype(np.int32),
        "self_loops": np.unique(rows[rows == columns]).astype(np.int32),
    }
    return GraphArrays(undirected(rows, columns, nodes), features, one_hot.argmax(1).astype(np.int64), splits)
