"""Build a checked graph from columns, for all formats of user files.

Edges become undirected, and what that changed is said. A missing split is drawn, stratified and seeded, and said.
Labels are held against the split: nothing in a mask without a label, every class in training, no class with one label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch_geometric.data import Data

from graphcal.lab.datasets.arrays import symmetrise
from graphcal.lab.datasets.loading import set_masks
from graphcal.lab.datasets.protocols import Split, stratified


@dataclass
class Parts:
    """A graph of the user's, read but not yet checked."""

    where: str  # the file that labels and split came from
    x: torch.Tensor  # (N, D)
    rows: np.ndarray  # (E,) node numbers
    columns: np.ndarray  # (E,)
    labels: np.ndarray  # (N,) class numbers, -1 where there is none
    class_names: Sequence[str]
    split: Split | None
    notes: list[str] = field(default_factory=list)


def assemble(parts: Parts, seed: int) -> Data:
    """Check the parts against each other and make the `Data`."""
    labels, names, where = parts.labels, parts.class_names, parts.where
    counts = np.bincount(labels[labels >= 0], minlength=len(names))
    if len(names) < 2:
        raise ValueError(f"{where}: {len(names)} classes among the labels; a classifier needs at least two")
    if counts.min() < 2:
        few = int(counts.argmin())
        raise ValueError(f"{where}: class {names[few]!r} has {counts[few]} label; every class needs at least two")
    notes, split = list(parts.notes), parts.split
    if split is None:
        split = stratified(labels, np.random.default_rng(seed))
        notes.append(f"no split given: 60/20/20 stratified by class, seed {seed}")
        protocol = f"stratified 60/20/20, seed {seed}"
    else:
        protocol = "as given in the file"
    _hold_against(split, labels, names, where)
    edge_index, edge_notes = symmetrise(parts.rows, parts.columns, len(labels))
    data = Data(x=parts.x, edge_index=torch.from_numpy(edge_index), y=torch.from_numpy(labels.astype(np.int64)))
    set_masks(data, split)
    data.num_classes, data.class_names = len(names), list(names)
    data.notes, data.protocol = notes + edge_notes, protocol
    return data


def _hold_against(split: Split, labels: np.ndarray, names: Sequence[str], where: str) -> None:
    """The split and the labels must agree."""
    for part in ("train", "val", "test"):
        listed = getattr(split, part)
        if not len(listed):
            raise ValueError(
                f"{where}: no node is in {part!r}; name nodes for train, val and test, or leave the split out "
                "and one is made"
            )
        bare = listed[labels[listed] < 0]
        if len(bare):
            raise ValueError(f"{where}: row {int(bare.min()) + 1} is in {part!r} but has no label")
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        both = np.intersect1d(getattr(split, one), getattr(split, other))
        if len(both):
            raise ValueError(f"{where}: row {int(both[0]) + 1} is in {one!r} and in {other!r}")
    absent = np.setdiff1d(np.unique(labels[labels >= 0]), labels[split.train])
    if len(absent):
        missing = ", ".join(repr(names[c]) for c in absent[:5])
        raise ValueError(f"{where}: no training node has the label {missing}; every class must occur in training")
