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

from graphcal.datasets.arrays import GraphArrays, undirected


def _tidy(features: sp.csr_matrix) -> sp.csr_matrix:
    features = sp.csr_matrix(features, dtype=np.float32)
    features.sum_duplicates()
    features.eliminate_zeros()
    return features


def _loops(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return np.unique(rows[rows == columns]).astype(np.int32)


def read_benchmark(path: Path) -> GraphArrays:
    """computers, photo, cs, physics, corafull."""
    with np.load(path, allow_pickle=False) as file:  # object arrays such as `idx_to_node` are never touched
        adj = sp.csr_matrix((file["adj_data"], file["adj_indices"], file["adj_indptr"]), tuple(file["adj_shape"]))
        attr = sp.csr_matrix((file["attr_data"], file["attr_indices"], file["attr_indptr"]), tuple(file["attr_shape"]))
        labels = file["labels"].astype(np.int64)
    edges = adj.tocoo()
    splits = {"self_loops": _loops(edges.row, edges.col)}
    return GraphArrays(undirected(edges.row, edges.col, len(labels)), _tidy(attr), labels, splits)


def read_heterophilous(path: Path) -> GraphArrays:
    """chameleon, squirrel and their filtered versions."""
    with np.load(path, allow_pickle=False) as file:
        rows, columns = file["edges"].T
        labels = file["node_labels"].astype(np.int64)
        features = _tidy(sp.csr_matrix(file["node_features"]))
        splits = {key: file[key].astype(bool) for key in ("train_masks", "val_masks", "test_masks")}
    splits["self_loops"] = _loops(rows, columns)
    return GraphArrays(undirected(rows, columns, len(labels)), features, labels, splits)


def year_buckets(years: np.ndarray, classes: int = 5) -> np.ndarray:
    """Class of each paper: the quantile interval, closed below and open above, its year falls in."""
    edges = np.quantile(years, np.arange(1, classes) / classes)
    return np.searchsorted(edges, years, side="right").astype(np.int64)


def read_arxiv_year(path: Path) -> GraphArrays:
    """OGB's raw archive of ogbn-arxiv."""
    with zipfile.ZipFile(path) as archive:
        edges = _table(archive, "arxiv/raw/edge.csv.gz")
        years = _table(archive, "arxiv/raw/node_year.csv.gz").column(0).to_numpy()
        columns = _table(archive, "arxiv/raw/node-feat.csv.gz").columns
    features = np.empty((len(years), len(columns)), dtype=np.float32)
    for k, column in enumerate(columns):
        features[:, k] = column.to_numpy()
    rows, cols = edges.column(0).to_numpy(), edges.column(1).to_numpy()
    splits = {"self_loops": _loops(rows, cols)}
    return GraphArrays(undirected(rows, cols, len(years)), _tidy(features), year_buckets(years), splits)


def _table(archive: zipfile.ZipFile, member: str) -> pa.Table:
    """A gzipped CSV without header."""
    text = gzip.decompress(archive.read(member))
    options = pyarrow.csv.ReadOptions(autogenerate_column_names=True)
    return pyarrow.csv.read_csv(io.BytesIO(text), read_options=options)
