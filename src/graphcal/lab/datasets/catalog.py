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

from graphcal.files import read_toml
from graphcal.lab.datasets._fetch import download_of, fetch
from graphcal.lab.datasets.arrays import GraphArrays, digest, load_npz, require_arrays, save_npz
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

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Nodes, edges, features, classes."""
        return self.num_nodes, self.num_edges, self.num_features, self.num_classes


def _read_entries() -> dict[str, CatalogEntry]:
    tables = read_toml(Path(__file__).with_name("data") / "graphs.toml")
    return {name: CatalogEntry(*table.pop("sizes"), **table) for name, table in tables.items()}


NAMES: Mapping[str, CatalogEntry] = MappingProxyType(_read_entries())


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
    expected = entry(name).sizes
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
    catalog_entry, here = entry(name), at_hand(name, root)
    if here is not None:
        path, kind = here
        source = "embedded in graphcal" if kind == "embedded" else f"{kind} ({path})"
        graph = load_npz(path)
        if catalog_entry.protocol == "release":  # a section may have no package in this release
            graph = replace(graph, named_classes=len(require_arrays(path, ("class_names",))["class_names"]))
        return check(name, graph, str(path)), source
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
