"""What DATASET means on the command line: the name of a known graph, or a path to one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_geometric.data import Data


def graph_of(dataset: str, protocol: str = "", labels_per_class: int = 20, split: int = 0) -> Data:
    from graphcal import datasets

    if dataset in datasets.NAMES or not Path(dataset).exists():
        return datasets.load(dataset, protocol or None, labels_per_class, split)
    return datasets.read(dataset)
