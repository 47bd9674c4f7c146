"""CoraFull, arxiv-year and their like cannot be fetched everywhere: their readers are tested on small files of the
same raw format."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from graphcal.lab.datasets import _fetch as fetching
from graphcal.lab.datasets import catalog
from graphcal.lab.datasets._raw import read_arxiv_year, read_benchmark, read_heterophilous, year_buckets


def write_benchmark(path: Path) -> None:
    """The layout of cora_full.npz: directed edges with a self loop, unsorted features, an object array beside them."""
    adj = sp.csr_matrix(([1.0, 1.0, 1.0, 1.0], ([0, 1, 2, 2], [1, 2, 0, 2])), shape=(4, 4))
    attr = sp.csr_matrix(([3.0, 1.0, 0.0, 2.0], [2, 0, 1, 1], [0, 2, 3, 4, 4]), shape=(4, 3))
    parts = {f"adj_{key}": getattr(adj, key) for key in ("data", "indices", "indptr", "shape")}
    parts |= {f"attr_{key}": getattr(attr, key) for key in ("data", "indices", "indptr", "shape")}
    np.savez(path, **parts, labels=np.array([0, 2, 1, 2]), idx_to_node=np.array({0: "paper"}, dtype=object))


def test_benchmark_files(tmp_path: Path) -> None:
    write_benchmark(tmp_path / "cora_full.npz")
    graph = read_benchmark(tmp_path / "cora_full.npz")
    assert graph.edge_index.tolist() == [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
    assert graph.features.toarray().tolist() == [[1, 0, 3], [0, 0, 0], [0, 2, 0], [0, 0, 0]]
    assert graph.features.nnz == 3, "explicit zeros are dropped"
    assert graph.features.has_sorted_indices
    assert graph.labels.tolist() == [0, 2, 1, 2]
    assert graph.splits["self_loops"].tolist() == [2]


def test_heterophilous_files(tmp_path: Path) -> None:
    masks = np.eye(10, 4, dtype=bool)
    np.savez(
        tmp_path / "chameleon_filtered.npz",
        node_features=np.array([[0, 1.0], [1, 0], [0, 0], [1, 1]]),
        node_labels=np.array([1, 0, 1, 0]),
        edges=np.array([[0, 1], [1, 0], [3, 2]]),
        train_masks=masks,
        val_masks=~masks,
        test_masks=masks[::-1],
    )
    graph = read_heterophilous(tmp_path / "chameleon_filtered.npz")
    assert graph.edge_index.tolist() == [[0, 1, 2, 3], [1, 0, 3, 2]]
    assert graph.features.toarray().tolist() == [[0, 1], [1, 0], [0, 0], [1, 1]]
    assert graph.splits["test_masks"].tolist() == masks[::-1].tolist()


def write_arxiv(path: Path) -> None:
    members = {
        "edge.csv.gz": "0,1\n1,2\n3,1\n",
        "node-feat.csv.gz": "0.5,-1\n0.25,2\n0,0\n1e-3,4\n-1,0.125\n",
        "node_year.csv.gz": "2013\n2020\n2015\n2017\n2018\n",
        "num-node-list.csv.gz": "5\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(f"arxiv/raw/{name}", gzip.compress(text.encode()))


def test_arxiv_files(tmp_path: Path) -> None:
    write_arxiv(tmp_path / "arxiv.zip")
    graph = read_arxiv_year(tmp_path / "arxiv.zip")
    assert graph.edge_index.tolist() == [[0, 1, 1, 1, 2, 3], [1, 0, 2, 3, 1, 1]]
    expected = [[0.5, -1], [0.25, 2], [0, 0], [1e-3, 4], [-1, 0.125]]
    assert np.allclose(graph.features.toarray(), expected)
    assert graph.labels.tolist() == [0, 4, 1, 2, 3]


def test_year_buckets_follow_the_quantiles_of_linkx() -> None:
    """Class k holds the values from the k/5 quantile up to, and without, the (k+1)/5 quantile."""
    years = np.random.default_rng(0).integers(1990, 2021, size=1000)
    edges = [-np.inf, *(np.quantile(years, k / 5) for k in range(1, 5)), np.inf]
    expected = np.full(1000, -1)
    for k in range(5):
        expected[(years >= edges[k]) & (years < edges[k + 1])] = k
    assert np.array_equal(year_buckets(years), expected)


def test_files_you_put_in_the_cache_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way out for a machine without network: the raw file, put into the folder the error names."""
    monkeypatch.delenv("GRAPHCAL_DATA", raising=False)
    (tmp_path / "raw" / "arxiv-year").mkdir(parents=True)
    write_arxiv(tmp_path / "raw" / "arxiv-year" / "arxiv.zip")
    graph = fetching.fetch("arxiv-year", tmp_path / "raw" / "arxiv-year")
    assert graph.num_nodes == 5
    with pytest.raises(FileNotFoundError, match=r"are \(5, 6, 2, 5\), expected \(169343, 2315598, 128, 5\)"):
        catalog.find("arxiv-year", tmp_path)
