"""Three ways in which the graph at hand can differ from the graph that was calibrated.

    without_class        a class that no training or validation node had shows up at test time
    with_mixed_features  later nodes' features are not like those seen: a share of each row comes from another node
    with_rewired_edges   later nodes' edges are not like those seen: a share of them leads elsewhere

"Later" nodes are all outside the training and the validation set. Those two stay as they were: the shift comes at test time.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch_geometric.data import Data


def without_class(data: Data, label: int) -> Data:
    """The same graph with ``label`` unknown: its nodes leave the training, validation and test sets and are `unknown_mask`.

    The classes above it move down by one; nodes of the unknown class are labelled -1.
    """
    classes = int(data.get("num_classes") or int(data.y.max()) + 1)
    if not 0 <= label < classes:
        raise ValueError(f"class {label} does not exist: the graph has classes 0..{classes - 1}")
    if classes < 3:
        raise ValueError(f"leaving out a class needs at least three; the graph has {classes}")
    known = copy.copy(data)
    unknown = data.y == label
    known.y = torch.where(data.y > label, data.y - 1, data.y).masked_fill(unknown, -1)
    known.num_classes = classes - 1
    known.unknown_mask = unknown & data.test_mask
    for name in ("train_mask", "val_mask", "test_mask"):
        known[name] = data[name] & ~unknown
    return known


def later(data: Data) -> Tensor:
    """Nodes that neither training nor validation saw."""  # (N,)
    seen: Tensor = data.train_mask | data.val_mask
    return ~seen


def with_mixed_features(data: Data, share: float, generator: torch.Generator) -> Data:
    """Each later node takes a random ``share`` of its features from another, random node."""
    _check_share(share)
    if data.x.layout != torch.strided:
        raise ValueError(f"mixing features needs dense features x (N, F); got a tensor with layout {data.x.layout}")
    changed = copy.copy(data)
    other = data.x[torch.randint(len(data.x), (len(data.x),), generator=generator)]
    taken = (torch.rand(data.x.shape, generator=generator) < share) & later(data)[:, None]
    changed.x = torch.where(taken, other, data.x)
    return changed


def with_rewired_edges(data: Data, share: float, generator: torch.Generator) -> Data:
    """A random ``share`` of the edges between later nodes moves one end to another, random later node.

    Both directions of an edge move together; edges come back in both directions, without self loops.
    """
    _check_share(share)
    row, col = torch.unique(data.edge_index.sort(0).values, dim=1)  # each undirected edge once
    pool = later(data).nonzero().flatten()
    moved = later(data)[row] & later(data)[col] & (torch.rand(len(row), generator=generator) < share)
    col = torch.where(moved, pool[torch.randint(len(pool), (len(col),), generator=generator)], col)
    pairs = torch.stack([row, col])[:, row != col]
    changed = copy.copy(data)
    changed.edge_index = torch.unique(torch.cat([pairs, pairs.flip(0)], 1), dim=1)
    return changed


def _check_share(share: float) -> None:
    if not 0 <= share <= 1:
        raise ValueError(f"share must be in [0, 1]; got {share}")
