"""Where graphs come from: the order, the checks, and what is said when nothing is reachable."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from planetoid_small import planetoid_files

from graphcal.lab.datasets import catalog, load
from graphcal.lab.datasets._raw import PARTS, read_planetoid
from graphcal.lab.datasets.arrays import GraphArrays, digest, save_npz
from graphcal.lab.datasets.catalog import CatalogEntry


def test_counts_are_asserted(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_npz(alone / "data" / "cora.npz", read_planetoid(planetoid_files().__getitem__))
    monkeypatch.setenv("GRAPHCAL_DATA", str(alone / "data"))
    with pytest.raises(ValueError, match=r"are \(8, 8, 3, 2\), expected \(2708, 10556, 1433, 7\)"):
        load("cora")


def test_a_broken_file_is_named(alone: Path) -> None:
    (alone / "cache").mkdir()
    (alone / "cache" / "cora.npz").write_bytes(b"not a zip archive")
    with pytest.raises(ValueError, match=r"cora\.npz: not a readable \.npz file"):
        load("cora")


@pytest.fixture
def small_cora(monkeypatch: pytest.MonkeyPatch) -> GraphArrays:
    """The catalogue believes that cora is the small graph above."""
    graph = read_planetoid(planetoid_files().__getitem__)
    entry = CatalogEntry(8, 8, 3, 2, "public", "origin", "licence", content=digest(graph))
    monkeypatch.setattr(catalog, "entry", lambda name: entry)
    return graph


def test_download_is_read_checked_and_cached(
    alone: Path, small_cora: GraphArrays, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_geometric.datasets import Planetoid

    url, folder = server
    monkeypatch.setattr(Planetoid, "url", url)
    for part, content in planetoid_files().items():
        (folder / f"ind.cora.{part}").write_bytes(content)
    graph, origin = catalog.find("cora")
    assert origin == f"download ({url}/ind.cora.allx)"
    assert digest(graph) == digest(small_cora)
    kept = {path.name for path in (alone / "cache" / "raw" / "cora").iterdir()}
    assert kept == {f"ind.cora.{p}{end}" for p in PARTS for end in ("", ".sha256")}
    graph, origin = catalog.find("cora")
    assert origin.startswith("cache (")
    assert digest(graph) == digest(small_cora)


def test_changed_content_upstream_is_refused(
    alone: Path, small_cora: GraphArrays, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_geometric.datasets import Planetoid

    url, folder = server
    monkeypatch.setattr(Planetoid, "url", url)
    files = planetoid_files()
    files["tx"] = pickle.dumps(sp.csr_matrix(np.ones((3, 3), dtype=np.float32)), protocol=4)
    for part, content in files.items():
        (folder / f"ind.cora.{part}").write_bytes(content)
    with pytest.raises(FileNotFoundError, match="the content has SHA-256"):
        catalog.find("cora")
    assert not (alone / "cache" / "cora.npz").exists()


def test_offline_the_error_names_every_source_and_the_ways_out(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> GraphArrays:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(catalog, "fetch", unreachable)
    with pytest.raises(FileNotFoundError) as caught:
        load("pubmed")
    message = str(caught.value)
    for part in (
        "embedded: graphcal carries only citeseer",
        "GRAPHCAL_DATA: not set",
        f"cache: no pubmed.npz in {alone / 'cache'}",
        "download: no route to host",
        "set GRAPHCAL_DATA to a folder that has pubmed.npz",
        "ind.pubmed.allx",
        "use citeseer, which needs no network",
    ):
        assert part in message
