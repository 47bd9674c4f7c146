"""Downloads are whole and checked, or leave nothing."""

from __future__ import annotations

import hashlib
import http.server
import threading
from pathlib import Path

import pytest

from graphcal.lab.datasets import _fetch as fetching

pytestmark = pytest.mark.network


@pytest.mark.parametrize("name", ["cora", "corafull", "arxiv-year", "chameleon-filtered", "squirrel", "photo", "cs"])
def test_addresses(name: str) -> None:
    source = fetching.download_of(name)
    assert len(source.urls) == len(source.sha256) == (8 if name == "cora" else 1)
    assert all(url.startswith("https://") for url in source.urls)


def test_a_failed_download_leaves_nothing(server: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = server
    with pytest.raises(ConnectionError, match=r"missing\.npz: HTTP Error 404"):
        fetching.download(f"{url}/missing.npz", tmp_path / "raw" / "missing.npz")
    assert not list((tmp_path / "raw").iterdir())


def test_a_short_download_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "SCHEMES", ("http",))

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


def test_a_wrong_checksum_names_your_file_and_leaves_it(tmp_path: Path) -> None:
    (tmp_path / "cora_full.npz").write_bytes(b"something else")
    with pytest.raises(ConnectionError, match=r"cora_full\.npz is not the published file.*expected a4e0516c"):
        fetching.fetch("corafull", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["cora_full.npz"]


def test_a_download_with_a_wrong_checksum_is_not_kept(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_geometric.datasets import Amazon

    url, web = server
    monkeypatch.setattr(Amazon, "url", f"{url}/")
    (web / "cora_full.npz").write_bytes(b"something else")
    with pytest.raises(ConnectionError, match="expected a4e0516c"):
        fetching.fetch("corafull", tmp_path / "raw")
    assert not list((tmp_path / "raw").iterdir())


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A graph of one raw file without a known SHA-256; what the server answers can be changed."""
    answers = {"some.npz": b"the first answer"}
    source = fetching.Download(("https://nowhere.test/some.npz",), lambda files: files[0].read_bytes())  # type: ignore[arg-type,return-value]
    monkeypatch.setattr(fetching, "download_of", lambda name: source)
    monkeypatch.setattr(fetching, "download", lambda url, file: file.write_bytes(answers["some.npz"]))
    return answers


def test_an_unknown_file_is_trusted_at_first_use_and_held_to_that(web: dict[str, bytes], tmp_path: Path) -> None:
    assert fetching.fetch("some", tmp_path) == b"the first answer"
    digest = hashlib.sha256(b"the first answer").hexdigest()
    assert (tmp_path / "some.npz.sha256").read_text() == f"{digest}  some.npz\n"
    assert fetching.fetch("some", tmp_path) == b"the first answer"
    (tmp_path / "some.npz").write_bytes(b"rotten")
    with pytest.raises(ConnectionError, match=rf"some\.npz is not the file of its first use .*expected {digest}"):
        fetching.fetch("some", tmp_path)
    assert (tmp_path / "some.npz").read_bytes() == b"rotten"  # named, and left


def test_another_answer_of_the_server_is_not_kept(web: dict[str, bytes], tmp_path: Path) -> None:
    fetching.fetch("some", tmp_path)
    (tmp_path / "some.npz").unlink()
    web["some.npz"] = b"another answer"
    with pytest.raises(ConnectionError, match=r"https://nowhere\.test/some\.npz is not the file of its first use"):
        fetching.fetch("some", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["some.npz.sha256"]


def test_a_refused_graph_leaves_no_sum(web: dict[str, bytes], tmp_path: Path) -> None:
    def refuse(graph: object) -> None:
        raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"):
        fetching.fetch("some", tmp_path, refuse)
    assert not list(tmp_path.iterdir())


def test_known_sums() -> None:
    for name in ("citeseer", "pubmed", "corafull"):
        assert all(len(digest or "") == 64 for digest in fetching.download_of(name).sha256), name
    for name in ("cora", "computers", "physics"):  # never seen as published: trusted at first use
        assert set(fetching.download_of(name).sha256) == {None}, name
    assert len(set(fetching.known_sums().values())) == len(fetching.known_sums()) == 17
