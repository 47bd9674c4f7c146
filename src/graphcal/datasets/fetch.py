"""Published graphs from where their authors keep them.

The addresses are those of PyG's dataset classes (and OGB's for ogbn-arxiv); the files are fetched and read by us.

Departures from using PyG's classes whole: PyG downloads without verifying the server's certificate, writes in place, and
unpickles Planetoid's files. Here a download is verified (TLS, length, SHA-256 where one is known), read, and held against the
catalogue before it is kept, and no pickle is trusted. CoraFull is taken from the repository of Shchur et al., the file
CaGCN's DGL reads, because its SHA-256 is known.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graphcal.datasets.arrays import GraphArrays
from graphcal.datasets.downloads import download
from graphcal.datasets.planetoid import PARTS, read_planetoid
from graphcal.datasets.raw import read_arxiv_year, read_benchmark, read_heterophilous

OGB_ARXIV = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
CORA_ML = "https://github.com/abojchevski/graph2gauss/raw/master/data/cora_ml.npz"
CORAFULL_SHA256 = "a4e0516cf23ec24eca1ecc57e627414350219fa94337b5b2e232ab58acaf2df7"


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
        for file in files:
            if file.parent != folder:
                os.replace(file, folder / file.name)
    return graph


def _obtain(url: str, folder: Path, incoming: Path, sha256: str | None) -> Path:
    """The file at hand, or fetched into `incoming`; held to its SHA-256 where one is known."""
    name = url.rpartition("/")[2]
    at_hand = (folder / name).exists()
    file = folder / name if at_hand else incoming / name
    if not at_hand:
        download(url, file)
    found = hashlib.sha256(file.read_bytes()).hexdigest() if sha256 else None
    if found != sha256:
        which = f"{file} is not the published file: put that in its place or remove it" if at_hand else url
        raise ConnectionError(f"{which}: SHA-256 is {found}, expected {sha256}")
    return file
