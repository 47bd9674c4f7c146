"""Descriptions of datasets: the list of all, and the card of one."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphcal.lab.datasets.arrays import GraphArrays
from graphcal.lab.datasets.catalog import NAMES, at_hand, data_folder, entry, find
from graphcal.lab.datasets.protocols import PROTOCOLS, Request, Split, draw, fitting


@dataclass(frozen=True)
class Listed:
    """One line of the list."""

    name: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    protocol: str
    here: str  # where it is on this machine: embedded, GRAPHCAL_DATA, cache, or nothing


@dataclass(frozen=True)
class SplitSizes:
    """One protocol (at one label rate) on one graph."""

    protocol: str
    labels_per_class: int | None  # None: not a matter of this protocol
    splits: int | None  # None: any number
    train: int
    val: int
    test: int
    test_next_to_training: float  # the share of test nodes with a neighbour in training
    source: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class DatasetCard:
    """One dataset, measured on the graph itself."""

    name: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    nodes_per_class: tuple[int, ...]
    homophily: float  # the share of edges whose ends have the same label, among edges with both labels
    isolated: int
    unlabelled: int
    default_protocol: str
    origin: str
    licence: str
    source: str
    protocols: tuple[SplitSizes, ...]
    not_available: dict[str, str]  # protocol -> what it needs

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def listing(root: str | os.PathLike[str] | None = None) -> list[Listed]:
    """Every named dataset, its size, and where it is now; opens no graph."""
    local = {name: at_hand(name, root) for name in NAMES}
    return [Listed(name, *one.sizes, one.protocol, (local[name] or ("", ""))[1]) for name, one in NAMES.items()]


def card(name: str, root: str | os.PathLike[str] | None = None) -> DatasetCard:
    """Load a graph and measure it under every protocol that fits it, at its first split."""
    catalog_entry = entry(name)
    graph, source = find(name, root)
    folder = data_folder()
    protocols, missing = [], {}
    for protocol in fitting(name):
        rule = PROTOCOLS[protocol]
        for rate in rule.rates or (None,):
            request = Request(name, rate or 20, lists=folder / "splits" if folder else None)
            try:
                split = draw(protocol, graph, request)
            except ValueError as fault:
                missing[protocol] = str(fault)
                continue
            parts = (split.train, split.val, split.test)
            train, val, test = (int(membership(part, graph.num_nodes).sum()) for part in parts)
            near = near_training(graph, split)
            sizes = SplitSizes(protocol, rate, rule.splits, train, val, test, near, rule.source, split.notes)
            protocols.append(sizes)
    labelled, (rows, columns) = graph.labelled, graph.edge_index
    both = labelled[rows] & labelled[columns]
    return DatasetCard(
        name=name,
        num_nodes=graph.num_nodes,
        num_edges=graph.edge_index.shape[1],
        num_features=graph.features.shape[1],
        num_classes=graph.num_classes,
        nodes_per_class=tuple(int(n) for n in np.bincount(graph.labels[labelled], minlength=graph.num_classes)),
        homophily=float((graph.labels[rows] == graph.labels[columns])[both].mean()),
        isolated=int((np.bincount(rows, minlength=graph.num_nodes) == 0).sum()),
        unlabelled=int((~labelled).sum()),
        default_protocol=catalog_entry.protocol,
        origin=catalog_entry.origin,
        licence=catalog_entry.licence,
        source=source,
        protocols=tuple(protocols),
        not_available=missing,
    )


def membership(nodes: np.ndarray, size: int) -> np.ndarray:
    """(N,) bool: which nodes are listed; a repeat counts once."""
    member = np.zeros(size, dtype=bool)
    member[nodes] = True
    return member


def near_training(graph: GraphArrays, split: Split) -> float:
    """The share of test nodes outside training that have a training neighbour: V_F of the paper."""
    train, test = membership(split.train, graph.num_nodes), membership(split.test, graph.num_nodes)
    rows, columns = graph.edge_index
    near = np.zeros(graph.num_nodes, dtype=bool)
    near[columns[train[rows]]] = True
    return float((near & ~train)[test].mean())
