"""CoraFull from files that lie about: its structure in one, its 8,710 features in another, each recognised by what is in it.

    features    a CSR matrix of 19,793 x 8,710, its parts named
                    attr_data, ...          Shchur et al.'s cora_full.npz, graph2gauss's cora.npz, which PyG fetches
                    attr_matrix.data, ...   later files of graph2gauss's authors
                    feat_data, ...          the layout of `arrays`
                    data, ...               scipy.sparse.save_npz: features alone
    structure   corafull_structure.npz: edge_index, labels, self_loops; or what the first two kinds hold beside the features

Whatever a file is called, its shape says what it is. Where both a structure file and a whole copy are at hand, edges and labels
must be the same node by node: features in another order would be another graph. Files are only ever read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from graphcal.lab.datasets.arrays import (
    GraphArrays,
    check_classes,
    check_csr,
    check_edge_index,
    check_ids,
    require_arrays,
    undirected,
)  # fmt: skip
from graphcal.tables.array_files import read_arrays

NODES, WORDS = 19793, 8710
STRUCTURE = "corafull_structure.npz"
SPELLINGS = {"attr_": "adj_", "attr_matrix.": "adj_matrix.", "feat_": "", "": ""}  # of features -> of edges beside them
PARTS = ("data", "indices", "indptr", "shape")


def assemble_corafull(folders: Iterable[Path], shape: tuple[int, int] = (NODES, WORDS)) -> tuple[GraphArrays, str]:
    """The graph, and the files it came from; LookupError says what is missing."""
    files = [path for folder in folders if folder.is_dir() for path in sorted(folder.glob("*.npz"))]
    structures = [path for path in files if path.name == STRUCTURE]
    found = next(_feature_files(files, shape), None)
    if found is None:
        have = f"{structures[0].name} is there, but " if structures else ""
        raise LookupError(f"{have}no .npz file with features of {shape[0]} x {shape[1]} in any folder looked into")
    path, spelling = found
    features = _matrix(path, spelling)
    whole = _edges_and_labels(path, SPELLINGS[spelling], shape[0])
    if not structures:
        if whole is None:
            raise LookupError(f"{path.name} has the features alone: {STRUCTURE} must lie beside it")
        return GraphArrays(whole[0], features, whole[1], {"self_loops": whole[2]}), str(path)
    parts = require_arrays(structures[0], ("edge_index", "labels", "self_loops"))
    edges, labels = (
        check_edge_index(parts["edge_index"], shape[0], structures[0]),
        check_classes(parts["labels"], structures[0]),
    )
    loops = check_ids(parts["self_loops"], shape[0], structures[0], "self_loops")
    if whole is not None and not (np.array_equal(whole[1], labels) and np.array_equal(whole[0], edges)):
        raise ValueError(f"{path.name} and {structures[0].name} disagree on edges or labels: nodes in another order?")
    return GraphArrays(edges, features, labels, {"self_loops": loops}), f"{path} with {structures[0].name}"


def _feature_files(files: Iterable[Path], shape: tuple[int, int]) -> Iterator[tuple[Path, str]]:
    """Files that hold a matrix of that shape, and how they spell it."""
    for path in files:
        try:
            shapes, names = read_arrays(path, [f"{spelling}shape" for spelling in SPELLINGS])
        except (OSError, ValueError):
            continue  # not a file of plain arrays: somebody else's
        for spelling in SPELLINGS:
            parts = [f"{spelling}{part}" for part in PARTS]
            if all(part in names for part in parts) and np.array_equal(shapes[parts[-1]], shape):
                yield path, spelling
                break


def _matrix(path: Path, spelling: str) -> sp.csr_matrix:
    parts = require_arrays(path, [f"{spelling}{part}" for part in PARTS])
    matrix = check_csr({f"csr_{part}": parts[f"{spelling}{part}"] for part in PARTS}, "csr", path).astype(np.float32)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def _edges_and_labels(path: Path, spelling: str, nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Edges, labels and nodes with a self loop of a whole copy; None where a file has features alone."""
    parts, names = read_arrays(path, ["labels"])
    if not spelling or f"{spelling}indptr" not in names or "labels" not in parts:
        return None
    labels = check_classes(parts["labels"], path)
    adjacency = _matrix(path, spelling).tocoo()
    loops = np.unique(adjacency.row[adjacency.row == adjacency.col]).astype(np.int32)
    return undirected(adjacency.row, adjacency.col, nodes), labels, loops
