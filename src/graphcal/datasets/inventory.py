"""The folders graphs are kept in, and the list of all named graphs. No graph is opened, no torch imported."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from graphcal.datasets.catalog import NAMES


@dataclass(frozen=True)
class Listed:
    """One line of the list."""

    name: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    protocol: str
    sources: tuple[str, ...]  # the ways to get it anew
    here: str  # where it is on this machine: embedded, GRAPHCAL_DATA, cache, or nothing


def data_folder() -> Path | None:
    """The folder GRAPHCAL_DATA names, if it is set."""
    folder = os.environ.get("GRAPHCAL_DATA")
    return Path(folder) if folder else None


def cache_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """Where downloads are kept."""
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


def listing(root: str | os.PathLike[str] | None = None) -> list[Listed]:
    """Every named dataset, its size, and where it is now."""
    rows = []
    for name, known in NAMES.items():
        found = at_hand(name, root)
        here = found[1] if found else ""
        sources = ("download", "index") if known.on_index else ("download",)
        sizes = (known.num_nodes, known.num_edges, known.num_features, known.num_classes)
        rows.append(Listed(name, *sizes, known.protocol, sources, here))
    return rows
