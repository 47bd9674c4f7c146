"""Download published graphs from their authors' addresses, and verify them.

The addresses are those of PyG's dataset classes (and OGB's for ogbn-arxiv); the files are fetched and read by us.

Departures from using PyG's classes whole: PyG downloads without verifying the server's certificate, writes in place, and
unpickles Planetoid's files. Here a download is verified (TLS, length, SHA-256), read, and held against the catalogue before it
is kept, and no pickle is trusted. CoraFull is taken from the repository of Shchur et al., the file CaGCN's DGL reads, because
its SHA-256 is known.

SHA-256: `raw_files.toml` has those that are known. Another file is trusted at first use: when its graph has been accepted, its
sum is written beside it (FILE.sha256, as `sha256sum` writes it), and every later read holds the file to that.

One file from the network, whole and of a sensible size, or nothing.

Only https, also after a redirect. A download ends after so many bytes and so many seconds in all, however slowly they come
(`files`). A web page in the place of data (a login, a notice) is refused.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit

from graphcal.files import (
    ANSWER_SECONDS,
    DOWNLOAD,
    DOWNLOAD_SECONDS,
    atomic_file,
    read_text,
    read_toml,
    sha256_of,
    write_atomically,
)
from graphcal.lab.datasets._raw import PARTS, read_arxiv_year, read_benchmark, read_heterophilous, read_planetoid
from graphcal.lab.datasets.arrays import GraphArrays

SCHEMES = ("https",)
CHUNK = 1 << 16


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request: Any, answer: Any, code: int, message: str, headers: Any, address: str) -> Any:
        _check_scheme(address)
        return super().redirect_request(request, answer, code, message, headers, address)


def _check_scheme(url: str) -> None:
    if urlsplit(url).scheme not in SCHEMES:
        raise URLError(f"{url} is not {' or '.join(SCHEMES)}: what comes from there could be changed on the way")


def download(url: str, file: Path) -> None:
    """Fetch one file with progress on stderr; it appears under its name when it is complete."""
    from rich.console import Console
    from rich.progress import Progress

    try:
        _check_scheme(url)
        opener = urllib.request.build_opener(_SafeRedirects)
        with atomic_file(file) as out, opener.open(url, timeout=ANSWER_SECONDS) as answer:
            announced = int(answer.headers.get("Content-Length") or 0)
            with Progress(console=Console(file=sys.stderr), transient=True) as bar:
                task = bar.add_task(f"fetching {file.name}", total=announced or None)
                length = _copy(answer, out, announced, lambda done: bar.update(task, completed=done))
            if not length:
                raise ConnectionError("the answer is empty")
            if announced and length != announced:
                raise ConnectionError(f"{length} of {announced} bytes came")
    except (OSError, ValueError) as fault:
        raise ConnectionError(f"{url}: {fault}") from fault


def _copy(answer: Any, out: Any, announced: int, tell: Any) -> int:
    """The length of what came; refused as soon as it is too long, too slow, or a web page."""
    end, length = time.monotonic() + DOWNLOAD_SECONDS, 0
    if announced > DOWNLOAD:
        raise ConnectionError(f"{announced:,} bytes are announced; at most {DOWNLOAD:,} are fetched")
    while chunk := answer.read1(CHUNK):
        if not length and chunk.lstrip()[:1] == b"<":
            raise ConnectionError("a web page came in the place of the data: a login, perhaps, or a notice")
        out.write(chunk)
        length += len(chunk)
        tell(length)
        if length > DOWNLOAD:
            raise ConnectionError(f"more than {DOWNLOAD:,} bytes came")
        if time.monotonic() > end:
            raise ConnectionError(f"not complete after {DOWNLOAD_SECONDS:.0f} seconds")
    return length


OGB_ARXIV = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
CORA_ML = "https://github.com/abojchevski/graph2gauss/raw/master/data/cora_ml.npz"
KNOWN = Path(__file__).with_name("data") / "raw_files.toml"


@dataclass(frozen=True)
class Download:
    """Files to fetch and the function that reads them."""

    urls: tuple[str, ...]
    read: Callable[[list[Path]], GraphArrays]

    @property
    def sha256(self) -> tuple[str | None, ...]:
        """SHA-256 of every file, if known."""
        return tuple(known_sums().get(_name(url)) for url in self.urls)


@cache
def known_sums() -> dict[str, str]:
    """SHA-256 by the file's name."""
    return {name: str(digest) for name, digest in read_toml(KNOWN)["sha256"].items()}


def download_of(name: str) -> Download:
    """Location of the raw files of a named graph."""
    from torch_geometric.datasets import Amazon, Coauthor, HeterophilousGraphDataset, Planetoid

    if name in ("cora", "citeseer", "pubmed"):
        urls = tuple(f"{Planetoid.url}/ind.{name}.{part}" for part in PARTS)

        def read(files: list[Path]) -> GraphArrays:
            return read_planetoid(lambda part: files[PARTS.index(part)].read_bytes())

        return Download(urls, read)
    if name == "arxiv-year":
        return Download((OGB_ARXIV,), lambda files: read_arxiv_year(files[0]))
    if name == "corafull":
        return Download((f"{Amazon.url}cora_full.npz",), lambda files: read_benchmark(files[0]))
    if name == "cora_ml":
        return Download((CORA_ML,), lambda files: read_benchmark(files[0]))
    if name in ("facebook_pages", "blogcatalog"):
        raise LookupError(f"{name} is published in a format that is not read here")
    if name.startswith("debian-"):
        raise LookupError(f"`graphcal datasets debian PACKAGES --out {name}.npz` builds it from a package index")
    if name.split("-")[0] in ("chameleon", "squirrel", "tolokers"):
        url = f"{HeterophilousGraphDataset.url}/{name.replace('-', '_')}.npz"
        return Download((url,), lambda files: read_heterophilous(files[0]))
    file = {
        "computers": f"{Amazon.url}amazon_electronics_computers.npz",
        "photo": f"{Amazon.url}amazon_electronics_photo.npz",
        "cs": f"{Coauthor.url}ms_academic_cs.npz",
        "physics": f"{Coauthor.url}ms_academic_phy.npz",
    }[name]
    return Download((file,), lambda files: read_benchmark(files[0]))


def fetch(name: str, folder: Path, accept: Callable[[GraphArrays], object] = lambda graph: None) -> GraphArrays:
    """Download what is missing in `folder` and read it; a download stays there only if `accept` takes the graph.

    A file you put there yourself is used as it is, and never removed.
    """
    source = download_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=folder) as incoming:
        files = [_obtain(url, folder, Path(incoming), sha256) for url, sha256 in zip(source.urls, source.sha256)]
        graph = source.read(files)
        accept(graph)
        for file, sha256 in zip(files, source.sha256):
            if sha256 is None and not _sums(folder / file.name).exists():
                write_atomically(_sums(folder / file.name), f"{sha256_of(file)}  {file.name}\n")
            if file.parent != folder:
                os.replace(file, folder / file.name)
    return graph


def _obtain(url: str, folder: Path, incoming: Path, sha256: str | None) -> Path:
    """The file at hand, or fetched into `incoming`; held to its SHA-256 where one is known, or to that of its first use."""
    name = _name(url)
    at_hand = (folder / name).exists()
    file = folder / name if at_hand else incoming / name
    if not at_hand:
        download(url, file)
    source = "the published file"
    if sha256 is None and _sums(folder / name).exists():
        source = f"the file of its first use ({_sums(folder / name).name} says which)"
        sha256 = (read_text(_sums(folder / name), 1000).split() or [""])[0].lower()
    actual = sha256_of(file) if sha256 is not None else None
    if actual != sha256:
        which = f"{file} is not {source}: put that in its place or remove it" if at_hand else f"{url} is not {source}"
        raise ConnectionError(f"{which}: SHA-256 is {actual}, expected {sha256}")
    return file


def _name(url: str) -> str:
    return url.rpartition("/")[2]


def _sums(file: Path) -> Path:
    """Path of the SHA-256 of a file's first use."""
    return file.with_name(f"{file.name}.sha256")
