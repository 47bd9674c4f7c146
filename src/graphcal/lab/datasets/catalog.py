"""Catalogue of the named graphs: sizes, usual protocols, and where each file comes from.

`num_edges` counts directed entries, both directions stored, self loops and repeats removed. Every count is asserted when a
graph is loaded, so a changed file upstream is an error and never a silently different experiment.

Sources are tried in this order; the data's notes name the one used:

1. embedded in the package (citeseer)
2. `GRAPHCAL_DATA`: a folder of NAME.npz in the layout of `arrays`
3. the cache: `root`, else `GRAPHCAL_CACHE`, else ~/.cache/graphcal
4. a download from the addresses of PyG's dataset classes (OGB for arxiv-year); files that you put into the cache's
   raw/NAME yourself are read instead

A download must also have the SHA-256 that is known here (for graphs whose copy was seen at another address a difference
is said instead), and is then written to the cache. Offline, the error names every source tried and the ways out.

Departures: the paper's dataset table gives 124 training nodes for Citeseer at 40 labels per class and 360 for Pubmed at
60; the lists themselves have 240 and 180. It calls all features word indicators; Pubmed's are TF-IDF weights.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from graphcal.lab.datasets._fetch import download_of, fetch
from graphcal.lab.datasets.arrays import GraphArrays, digest, load_npz, save_npz
from graphcal.plugins import choices


@dataclass(frozen=True)
class CatalogEntry:
    """Expected facts of a named graph."""

    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    protocol: str  # the usual one
    origin: str
    licence: str
    row_normalise: bool = False  # features divided by their row sum, as the methods that use this graph do
    counts: bool = False  # features are word counts, which PyG turns into 0/1
    content: str | None = None  # `arrays.digest` of the graph; None where we could not see it ourselves
    mirrored: bool = False  # `content` was seen in another repository's copy: a difference is said, not refused


_PLANETOID = ("Planetoid, Yang et al. 2016 (arXiv:1603.08861)", "MIT (repository kimiyoung/planetoid); data of LINQS")
_GEOM = ("geom-gcn, Pei et al. 2020 (arXiv:2002.05287)", "MIT (repository yandex-research/heterophilous-graphs)")
_FILTERED = ("Platonov et al. 2023 (arXiv:2302.11640), repeated nodes removed", _GEOM[1])
_SHCHUR = ("Shchur et al. 2018 (arXiv:1811.05868)", "MIT (repository shchur/gnn-benchmark)")
_CORAFULL = ("Bojchevski & Günnemann 2018 (arXiv:1707.03815)", "MIT (repository abojchevski/graph2gauss)")
_GRAPHDATA = ("the collection EdisonLeeeee/GraphData", "MIT (repository EdisonLeeeee/GraphData)")
_CORA_ML = ("Bojchevski & Günnemann 2018 (arXiv:1707.03815)", _GRAPHDATA[1])
_TOLOKERS = ("Platonov et al. 2023 (arXiv:2302.11640)", _GEOM[1])
_PAGES = ("Facebook page network, MUSAE, Rozemberczki et al. 2021 (arXiv:1909.13021)", "GPL-3.0 (repository MUSAE)")
_DEBIAN = ("package index of the Debian release, main, amd64", "free metadata of the Debian project")
_LINKX = ("LINKX, Lim et al. 2021 (arXiv:2110.14446), on ogbn-arxiv (arXiv:2005.00687)", "ODC-BY (OGB)")

NAMES: Mapping[str, CatalogEntry] = MappingProxyType(
    {
        "cora": CatalogEntry(
            2708, 10556, 1433, 7, "public", *_PLANETOID, row_normalise=True,
            content="8077cc21639fefbfd15db55ed7bb3d3af119e62f1ed38e0aabc4995abe51c6b0",
        ),
        "citeseer": CatalogEntry(
            3327, 9104, 3703, 6, "public", *_PLANETOID, row_normalise=True,
            content="efe1eb5a359d66f4b0a5f4d31f605aa6529f87f27525d9c2a583e8b7a1139f55",
        ),
        "pubmed": CatalogEntry(
            19717, 88648, 500, 3, "public", *_PLANETOID, row_normalise=True,
            content="6518889d008a3b89821cdba036c0376c64b90165652a0941ebce32c89d06bd68",
        ),
        "corafull": CatalogEntry(19793, 126842, 8710, 70, "cagcn", *_CORAFULL, counts=True),
        "chameleon": CatalogEntry(
            2277, 62742, 2325, 5, "geom-gcn", *_GEOM,
            content="f6e7b21bac710f1c833907e85d8e7ddc7c626493e59d75500fbf87b6d146006b",
        ),
        "squirrel": CatalogEntry(
            5201, 396706, 2089, 5, "geom-gcn", *_GEOM,
            content="257d020bf76d18b00b1889b0071430dd55419bde284fbda4fcbf8cecd07f211d",
        ),
        "chameleon-filtered": CatalogEntry(
            890, 17708, 2325, 5, "geom-gcn", *_FILTERED,
            content="2f2fec187409a3e133a6e8062efab868249f9d6d5dc533d262b0e07998f7813f",
        ),
        "squirrel-filtered": CatalogEntry(
            2223, 93996, 2089, 5, "geom-gcn", *_FILTERED,
            content="7f570995f8bc402184ebdd76bd75c40a659239aa44314c715299aff3f31063e7",
        ),
        "arxiv-year": CatalogEntry(169343, 2315598, 128, 5, "linkx", *_LINKX),
        "computers": CatalogEntry(
            13752, 491722, 767, 10, "per-class", *_SHCHUR, mirrored=True,
            content="ad58a9a563042102b3031f4b0a3be8fbc7313c92a1f0388e719c74f4fcb7eec7",
        ),
        "photo": CatalogEntry(
            7650, 238162, 745, 8, "per-class", *_SHCHUR, mirrored=True,
            content="7bbbaf5556ddc72db47aeaceb91c8ec55f502bd2c45e42783dee714b2354d515",
        ),
        "cs": CatalogEntry(
            18333, 163788, 6805, 15, "per-class", *_SHCHUR, mirrored=True, counts=True,
            content="683a15164cb04c747c1c393e49891fa4d11eb67a03d310540858134b967fe8a6",
        ),
        "physics": CatalogEntry(
            34493, 495924, 8415, 5, "per-class", *_SHCHUR, mirrored=True, counts=True,
            content="9b8c0407dd4b8697f95cca13c0275b39f07ef14c065ad9932e09cb87acc4a1e7",
        ),
        "cora_ml": CatalogEntry(
            2995, 16316, 2879, 7, "per-class", *_CORA_ML, mirrored=True,
            content="73cab5791080ebcc28996e6147c6ee6cb7d57fd381eed4d98a473f472a2f23c2",
        ),
        "facebook_pages": CatalogEntry(
            22470, 341646, 4714, 4, "per-class", *_PAGES,
            content="0574a161a4710e064638240cdfcde7b6c43f04c1441629d7c9d17d6a87449591",
        ),
        "blogcatalog": CatalogEntry(
            5196, 343486, 8189, 6, "per-class", *_GRAPHDATA, row_normalise=True, counts=True,
            content="086f80dba5e6183f722ad14ff8a1c5af1f3fffbb05a7b42c1dc2777769a8bffa",
        ),
        "tolokers": CatalogEntry(
            11758, 1038000, 10, 2, "per-class", *_TOLOKERS,
            content="47fc72a3389b6062b51c406ef07ce265a852f834efa3939aa038dd9ce433e0ae",
        ),
        "debian-bullseye": CatalogEntry(
            57727, 514560, 2000, 51, "release", *_DEBIAN,
            content="5c8261513c58349c29fc59c7deaa2971c17b44c4b72fe10e1db2111adb55a3da",
        ),
        "debian-bookworm": CatalogEntry(
            62685, 567184, 2000, 51, "release", *_DEBIAN,
            content="fc6b7456a46f2a77ae68498eef10f9dd35d0b48a8752d28baf9ebbf41a38aa3a",
        ),
    }
)  # fmt: skip


def entry(name: str) -> CatalogEntry:
    """The catalogue entry of a dataset, or an error that lists the names.

    A Debian release that is not listed, ``debian-NAME``, has the entry of the listed ones without their counts.
    """
    listed = listed_name(name)
    if listed not in NAMES:
        raise ValueError(f"unknown dataset {name!r}; {choices(name, NAMES)}")
    if listed != name:
        return replace(NAMES[listed], num_nodes=0, num_edges=0, num_features=0, num_classes=0, content=None)
    return NAMES[name]


def listed_name(name: str) -> str:
    """The name itself; ``debian-bookworm`` for another Debian release."""
    return "debian-bookworm" if name not in NAMES and re.fullmatch("debian-[a-z0-9]+", name) else name


log = logging.getLogger(__name__)


def data_folder() -> Path | None:
    """The folder GRAPHCAL_DATA names, if it is set."""
    folder = os.environ.get("GRAPHCAL_DATA")
    return Path(folder) if folder else None


def cache_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """Folder of downloads."""
    if root is not None:
        return Path(root)
    if os.environ.get("GRAPHCAL_CACHE"):
        return Path(os.environ["GRAPHCAL_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "graphcal"


def at_hand(name: str, root: str | os.PathLike[str] | None = None) -> tuple[Path, str] | None:
    """The file of a graph that needs no network, and the kind of place it is in."""
    places = {"embedded": Path(__file__).parent / "data", "GRAPHCAL_DATA": data_folder(), "cache": cache_folder(root)}
    files = ((folder / f"{name}.npz", kind) for kind, folder in places.items() if folder is not None)
    return next(((path, kind) for path, kind in files if path.exists()), None)


def check(name: str, graph: GraphArrays, where: str) -> GraphArrays:
    """Assert the counts the catalogue knows."""
    catalog_entry = entry(name)
    expected = (catalog_entry.num_nodes, catalog_entry.num_edges, catalog_entry.num_features, catalog_entry.num_classes)
    actual = (graph.num_nodes, graph.edge_index.shape[1], graph.features.shape[1], graph.num_classes)
    if any(wanted not in (0, count) for wanted, count in zip(expected, actual)):  # 0: not listed
        raise ValueError(f"{name} from {where}: (nodes, edges, features, classes) are {actual}, expected {expected}")
    return graph


def check_content(name: str, graph: GraphArrays, where: str) -> str:
    """Assert counts and, where the catalogue has it, the SHA-256 of edges, features and labels; a remark or ''."""
    check(name, graph, where)
    catalog_entry, actual = entry(name), digest(graph)
    if catalog_entry.content in (None, actual):
        return ""
    remark = f"the content has SHA-256 {actual}, expected {catalog_entry.content}"
    if not catalog_entry.mirrored:
        raise ValueError(f"{name} from {where}: {remark}")
    return f"; {remark}"


def find(name: str, root: str | os.PathLike[str] | None = None) -> tuple[GraphArrays, str]:
    """The graph and the source it came from."""
    entry(name)
    here = at_hand(name, root)
    if here is not None:
        path, kind = here
        source = "embedded in graphcal" if kind == "embedded" else f"{kind} ({path})"
        return check(name, load_npz(path), str(path)), source
    cache = cache_folder(root)
    try:
        graph, source = _from_download(name, cache)
    except (OSError, ValueError, LookupError, zipfile.BadZipFile, pickle.UnpicklingError) as fault:
        log.info("%s: download failed: %s", name, fault)
        raise FileNotFoundError(_nowhere(name, cache, f"download: {fault}")) from fault
    save_npz(cache / f"{name}.npz", graph)
    return graph, source


def _from_download(name: str, cache: Path) -> tuple[GraphArrays, str]:
    urls = download_of(name).urls
    log.info("%s: trying %s", name, urls[0])
    remarks: list[str] = []
    graph = fetch(
        name, cache / "raw" / name, lambda graph_arrays: remarks.append(check_content(name, graph_arrays, urls[0]))
    )
    return graph, f"download ({urls[0]})" + "".join(remarks)


def _nowhere(name: str, cache: Path, fault: str) -> str:
    folder = data_folder()
    lines = [
        f"{name} is not on this machine and could not be fetched.",
        "Tried:",
    ]  # the first line stands alone in summaries
    lines += ["  embedded: graphcal carries only citeseer"]
    lines += [f"  GRAPHCAL_DATA: {f'no {name}.npz in {folder}' if folder else 'not set'}"]
    lines += [f"  cache: no {name}.npz in {cache}", f"  {fault}"]
    lines += ["Ways out:", f"  set GRAPHCAL_DATA to a folder that has {name}.npz"]
    with contextlib.suppress(LookupError):  # no address is known
        files = ", ".join(url.rpartition("/")[2] for url in download_of(name).urls)
        lines += [f"  put {files} into {cache / 'raw' / name}"]
    lines += ["  use citeseer, which needs no network"]
    return "\n".join(lines)
