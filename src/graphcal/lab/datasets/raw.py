"""The raw files of published graphs, in the formats their authors ship.

    read_benchmark      Shchur et al. and CoraFull: .npz with the CSR parts `adj_*`, `attr_*`, and `labels`
    read_heterophilous  Platonov et al.: .npz with `node_features`, `node_labels`, `edges`, `*_masks`
    read_arxiv_year     OGB's arxiv.zip: gzipped CSV; classes are five year buckets

Arxiv-year (LINKX, arXiv:2110.14446): class k holds the years in [q_k, q_{k+1}), q_k the k/5 quantile of all years.

Departures: PyG sets every feature of the first format to 0 or 1; here the values stay as shipped (protocol `gats` asks
for 0/1). Edges are made undirected everywhere, also arxiv-year's citations.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import scipy.sparse as sp

from graphcal.files import allowed_memory, check_archive, check_regular, read_at_most, reading
from graphcal.lab.datasets.arrays import (
    GraphArrays,
    check_classes,
    check_csr,
    check_edge_index,
    check_splits,
    require_arrays,
    undirected,
)  # fmt: skip

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
    with reading(path, "OGB's archive of ogbn-arxiv"):
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
