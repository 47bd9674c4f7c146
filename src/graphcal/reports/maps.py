"""The probability map: each node at its mixture of class corners, before and after calibration, small enough for a page.

Three classes or more sit on a circle; a node lies at Σ_c p_c corner_c, so a sure node is near a corner and a torn one in the
middle. At most 20,000 nodes, sampled per stratum (part of the split × predicted class) in proportion, at least one of each.
Columns are little-endian integers, deflated, in base64.
"""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphcal.graphs import class_name, node_name, structure

if TYPE_CHECKING:
    from torch_geometric.data import Data

Array = NDArray[Any]
MOST_NODES, MOST_BYTES, NEIGHBOURS = 20_000, 400_000, 4
NONE = 65535  # no neighbour, no label
FIELDS = ("node", "x0", "y0", "x1", "y1", "conf0", "conf1", "pred0", "pred1", "label", "part", "hops", "degree")
MOST_NAMES = 100_000  # characters of ids
WIDE = ("node",)  # four bytes; the others have two


def corners(classes: int) -> Array:
    """(C, 2) on the unit circle, the first at the top."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(classes) / classes
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def places(log_probs: Tensor) -> Array:
    """(N, 2) in -1..1."""
    probs = log_probs.detach().double().exp().numpy()
    return np.asarray(probs @ corners(probs.shape[1]))


def sampled(strata: Array, most: int, seed: int = 0) -> Array:
    """Numbers of at most ``most`` nodes, from every stratum in proportion, at least one of each."""
    if len(strata) <= most:
        return np.arange(len(strata))
    rng, sample = np.random.default_rng(seed), []
    for stratum, count in zip(*np.unique(strata, return_counts=True)):
        members = np.flatnonzero(strata == stratum)
        sample.append(rng.permutation(members)[: max(1, int(count * most / len(strata)) - 1)])
    return np.sort(np.concatenate(sample))[:most]


def neighbour_table(edge_index: Array, nodes: Array, num_nodes: int) -> Array:
    """(n, 4) places in ``nodes`` of up to four neighbours that are shown, `NONE` where there are fewer."""
    position = np.full(num_nodes, NONE, np.int64)
    position[nodes] = np.arange(len(nodes))
    row, col = position[edge_index[0]], position[edge_index[1]]
    both = (row != NONE) & (col != NONE)
    row, col = row[both], col[both]
    order = np.argsort(row, kind="stable")
    row, col = row[order], col[order]
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    table = np.full((len(nodes), NEIGHBOURS), NONE, np.int64)
    few = rank < NEIGHBOURS
    table[row[few], rank[few]] = col[few]
    return table


def node_map(before: Tensor, after: Tensor, graph: Data, most: int = MOST_NODES) -> dict[str, Any]:
    """The map's record: sizes, and its columns packed."""
    classes, facts = before.shape[1], structure(graph)
    hops, degree = facts.hops.numpy(), facts.degree.numpy()
    parts = np.zeros(len(before), np.int64)
    for number, name in enumerate(("train_mask", "val_mask", "test_mask"), start=1):
        if graph.get(name) is not None:
            parts[graph[name].numpy()] = number
    pred = after.argmax(dim=1).numpy()
    nodes = sampled(parts * classes + pred, most)
    (x0, y0), (x1, y1) = (places(lp)[nodes].T for lp in (before, after))
    conf0, conf1 = (lp.double().max(dim=1).values.exp().clamp(max=1).numpy()[nodes] for lp in (before, after))
    label = graph.y.numpy()[nodes]
    columns = {
        "node": nodes,
        **{name: np.round((v + 1) / 2 * NONE) for name, v in zip(("x0", "y0", "x1", "y1"), (x0, y0, x1, y1))},
        **{name: np.round(v * 1000) for name, v in zip(("conf0", "conf1"), (conf0, conf1))},
        "pred0": before.argmax(dim=1).numpy()[nodes],
        "pred1": pred[nodes],
        "label": np.where(label < 0, NONE, label),
        "part": parts[nodes],
        "hops": np.where(hops < 0, NONE, hops)[nodes],
        "degree": np.minimum(degree, NONE)[nodes],
    }
    table = neighbour_table(facts.edge_index.numpy(), nodes, len(before))
    packed = [np.asarray(columns[k]).astype("<u4" if k in WIDE else "<u2").tobytes() for k in FIELDS]
    packed += [table[:, k].astype("<u2").tobytes() for k in range(NEIGHBOURS)]
    squeezed = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = squeezed.compress(b"".join(packed)) + squeezed.flush()
    if len(data) > MOST_BYTES and len(nodes) > 1000:
        return node_map(before, after, graph, int(len(nodes) * 0.95 * MOST_BYTES / len(data)))
    return {
        "nodes": len(nodes),
        "of": len(before),
        "classes": classes,
        "neighbours": NEIGHBOURS,
        "names": names_shown(graph, nodes, classes),
        "data": base64.b64encode(data).decode(),
    }


def names_shown(graph: Data, nodes: Array, classes: int) -> dict[str, list[str]]:
    """Ids of the nodes, where the graph has its own and they are not too long for the page, and names of the classes."""
    names = {"classes": [class_name(graph, c) for c in range(classes)]}
    ids = [node_name(graph, int(node)) for node in nodes] if graph.get("node_ids") is not None else []
    return names | ({"ids": ids} if ids and sum(map(len, ids)) <= MOST_NAMES else {})
