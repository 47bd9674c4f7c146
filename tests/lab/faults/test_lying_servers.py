"""A server on this machine that lies, trickles or leads astray: nothing of it is kept, and a file of yours stays."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from planetoid_small import planetoid_files

from graphcal.lab.datasets import _fetch as fetch
from graphcal.lab.datasets import catalog
from graphcal.lab.datasets._fetch import download

pytestmark = pytest.mark.network

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], str]]:
    """Start a server that answers every request so; gives its address."""
    monkeypatch.setattr(fetch, "SCHEMES", ("http",))
    running: list[http.server.ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *_: object) -> None:
                pass

        running.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        running[-1].daemon_threads = True
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{running[-1].server_address[1]}"

    yield start
    for one in running:
        one.shutdown()
        one.server_close()


def say(content: bytes, **headers: str) -> Answer:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(content)

    return answer


def redirect(address: str) -> Answer:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", address)
        request.end_headers()

    return answer


def trickle(request: http.server.BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    for _ in range(200):
        request.wfile.write(b"x")
        request.wfile.flush()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (say(b"  <!doctype html><p>Log in</p>"), "a web page came"),
        (say(b""), "the answer is empty"),
        (say(b"only this", Content_Length="1000"), "9 of 1000 bytes|IncompleteRead"),
        (say(b"x", Content_Length=str(10**13)), "bytes are announced; at most"),
        (say(b"x" * 5000), "more than 1,000 bytes came"),
        (trickle, "not complete after 1 seconds"),
        (redirect("file:///etc/passwd"), "is not http|is not allowed"),
        (redirect("ftp://127.0.0.1/x"), "is not http"),
        (say(b"x", Content_Length="many"), "invalid literal"),
    ],
)
def test_nothing_is_kept(
    lying: Callable[[Answer], str], answer: Answer, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "DOWNLOAD", 1000 if message.startswith("more") else 10**6)
    monkeypatch.setattr(fetch, "DOWNLOAD_SECONDS", 1.0)
    with pytest.raises(ConnectionError, match=message) as refused:
        download(f"{lying(answer)}/x.npz", tmp_path / "x.npz")
    assert "x.npz" in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_only_https_also_after_a_redirect(
    lying: Callable[[Answer], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = lying(say(b"data"))
    with monkeypatch.context() as strict:
        strict.setattr(fetch, "SCHEMES", ("https",))
        with pytest.raises(ConnectionError, match="is not https"):
            download(f"{url}/x.npz", tmp_path / "x.npz")
        with pytest.raises(Exception, match="is not https"):
            fetch._SafeRedirects().redirect_request(None, None, 302, "", {}, f"{url}/x.npz")
    download(f"{lying(redirect(f'{url}/x.npz'))}/y.npz", tmp_path / "x.npz")
    assert (tmp_path / "x.npz").read_bytes() == b"data"


def test_a_login_page_does_not_block_the_graph(
    lying: Callable[[Answer], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call asks again; a damaged graph that parses is refused by its content, and is not kept either."""
    from torch_geometric.datasets import Planetoid

    requests: list[str] = []
    answers = {"now": b"<html>log in</html>"}

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        requests.append(request.path)
        say(answers["now"] or planetoid_files()[request.path.removeprefix("/ind.cora.")])(request)

    for name in ("GRAPHCAL_DATA", "GRAPHCAL_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Planetoid, "url", lying(answer))
    for _ in range(2):
        before = len(requests)
        with pytest.raises(FileNotFoundError, match="a web page came"):
            catalog.find("cora", tmp_path)
        assert len(requests) > before
    answers["now"] = b""  # now Planetoid's format, but another graph
    with pytest.raises(FileNotFoundError, match=r"are \(8, 8, 3, 2\), expected"):
        catalog.find("cora", tmp_path)
    assert not list((tmp_path / "raw" / "cora").iterdir())
