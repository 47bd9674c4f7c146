"""Named graphs and protocols, synthetic graphs, and your own files, all as a PyG `Data`.

Each name is imported when first used, so that the list of graphs does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphcal.lab.datasets.catalog import NAMES

if TYPE_CHECKING:
    from graphcal.lab.datasets.blockmodel import synthetic
    from graphcal.lab.datasets.loading import load
    from graphcal.lab.datasets.own_files import read
    from graphcal.lab.datasets.protocols import PROTOCOLS

__all__ = ["NAMES", "PROTOCOLS", "load", "read", "synthetic"]

_WHERE = {"PROTOCOLS": "protocols", "load": "loading", "read": "own_files", "synthetic": "blockmodel"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'graphcal.lab.datasets' has no attribute {name!r}; it has {', '.join(__all__)}")
    globals()[name] = getattr(import_module(f"graphcal.lab.datasets.{_WHERE[name]}"), name)
    return globals()[name]
