"""Published graphs from where their authors keep them.

The addresses are those of PyG's dataset classes (and OGB's for ogbn-arxiv); the files are fetched and read by us.

Departures from using PyG's classes whole: PyG downloads without verifying the server's certificate, writes in place, and
unpickles Planetoid's files. Here a download is verified (TLS, length, SHA-256 where one is known), written under another
name and renamed when complete, and no pickle is trusted. CoraFull is taken from the repository of Shchur et al., the file
CaGCN's DGL reads, because its SHA-256 is known.
"""

from __future__ import annotations

import hashlib
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graphcal.datasets.arrays import GraphArrays
from graphcal.datasets.planetoid import PARTS, read_planetoid
from graphcal.datasets.raw import read_arxiv_year, read_benchmark, read_heterophilous
from graphcal.files import atomic_file

OGB_ARXIV = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
CORA_ML = "https://github.com/abojchevski/graph2gauss/raw/master/data/cora_ml.npz"
CORAFULL_SHA256 = "a4e0516cf23ec24eca1ecc57e627414350219fa94337b5b2e232ab58acaf2df7"
TIMEOUT = 30.0  # seconds without an answer


@dataclass(frozen=True)
class Download:
    """Files to fetch and the function that reads them."""

    urls: tuple[str, ...]
    read: Callable[[list[Path]], GraphArrays]
    sha256: tuple[str | None, ...] = (None,)


def download_of(name: str) -> Download:
    """Where the raw files of a named graph are."""
    from torch_geometric.datasets import Amazon, Coauthor, HeterophilousGraphDataset, Planetoid

    if name in ("cora", "citeseer", "pubmed"):
        urls = tuple(f"{Planetoid.url}/ind.{name}.{part}" for part in PARTS)

        def read(files: list[Path]) -> GraphArrays:
            return read_planetoid(lambda part: files[PARTS.index(part)].read_bytes())

        return Download(urls, read, (None,) * len(PARTS))
    if name == "arxiv-year":
        return Download((OGB_ARXIV,), lambda files: read_arxiv_year(files[0]))
    if name == "corafull":
        return Download((f"{Amazon.url}cora_full.npz",), lambda files: read_benchmark(files[0]), (CORAFULL_SHA256,))
    if name == "cora_ml":
        return Download((CORA_ML,), lambda files: read_benchmark(files[0]))
    if name in ("facebook_pages", "blogcatalog"):
        raise LookupError(f"{name} is published in a format that is not read here")
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


def fetch(name: str, folder: Path) -> GraphArrays:
    """Download what is missing in `folder` and read it. A file you put there yourself is used as it is."""
    source = download_of(name)
    files = [folder / url.rpartition("/")[2] for url in source.urls]
    for url, file, sha256 in zip(source.urls, files, source.sha256):
        if not file.exists():
            download(url, file)
        found = hashlib.sha256(file.read_bytes()).hexdigest() if sha256 else None
        if found != sha256:
            file.unlink()
            raise ConnectionError(f"{url}: SHA-256 is {found}, expected {sha256}; the file was removed")
    return source.read(files)


def download(url: str, file: Path) -> None:
    """Fetch one file with progress on stderr; it appears under its name when it is complete."""
    from rich.console import Console
    from rich.progress import wrap_file

    length = 0
    try:
        with atomic_file(file) as out, urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            announced = int(answer.headers.get("Content-Length") or 0)
            console = Console(file=sys.stderr)
            with wrap_file(answer, announced, description=f"fetching {file.name}", console=console) as stream:
                while chunk := stream.read(1 << 20):
                    out.write(chunk)
                    length += len(chunk)
            if announced and length != announced:
                raise ConnectionError(f"{length} of {announced} bytes came")
    except OSError as fault:
        raise ConnectionError(f"{url}: {fault}") from fault
