"""Split protocols by name: which nodes are in training, validation and test.

Published tables differ in their splits and cannot be compared across them, so a split has a name and a source:

    public       Planetoid's own split: 20 labels per class, 500 validation, 1,000 test (arXiv:1603.08861)
    cagcn        the label rates of CaGCN (arXiv:2109.14285), bug-compatible: 40 and 60 labels "per class" are the public
                 20 plus the next (L - 20)·C node ids after the last validation id, in file order, whatever their class;
                 CoraFull uses CaGCN's lists, whose validation ids repeat and whose training lists hold 3 (L = 40) and
                 12 (L = 60) test ids
    cagcn-clean  the same without the leaked test ids and without the repeats
    per-class    L labels in every class, 500 validation, all others test, seeded (after Shchur et al., arXiv:1811.05868)
    natural      the same number of labels drawn from all nodes alike: classes come with the shares they have in the graph
    region       training as per-class; 500 validation nodes from one half of the others, the first that a breadth-first search
                 from a random node meets; test is the other half
    degree       the same with the better connected half
    gats         GATS (arXiv:2210.06391): three folds of 5 % of each class, validation is one and training the other two,
                 test is 85 % of what is left of each class; split = 3·(random split) + fold, 15 in all
    geom-gcn     the ten 48/32/20 splits of geom-gcn (arXiv:2002.05287), or of Platonov et al. for the filtered graphs
    linkx        50/25/25 at random, five splits (arXiv:2110.14446): its published lists
    release      5,000 training (one of every class first) and 2,000 validation labels at random, all others test, seeded
    random       20/10/70 at random, one split shared by all runs, as GETS (arXiv:2410.09570) and WATS

A rule is a function of a graph and a request. `PROTOCOLS` is the table: for each name the rule, the graphs it fits, how many
splits it has, its source.

Departures: a class with fewer than 2L nodes gives half of them to training under `per-class`. Where the published lists of
GATS or LINKX are not at hand `gats` and `linkx` follow the rule with our own seed, and say so. Nodes without a label
are in no mask, also where a published list names them: Citeseer's 15, which PyG labels 0, are in GATS's and geom-gcn's lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from graphcal.lab.datasets.arrays import GraphArrays, check_ids, check_splits, require_arrays
from graphcal.lab.datasets.catalog import NAMES, listed_name
from graphcal.plugins import choices

RATES = (20, 40, 60)
RELEASE_LABELS = (5000, 2000)  # training, validation


@dataclass(frozen=True)
class Request:
    """Arguments of a protocol."""

    name: str
    labels_per_class: int = 20
    split: int = 0
    seed: int = 0
    lists: Path | None = None  # the folder of published lists, GRAPHCAL_DATA/splits


@dataclass(frozen=True)
class Split:
    """Node ids, as listed: `val` may hold repeats where the published list does."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    notes: tuple[str, ...] = ()


def public(graph: GraphArrays, request: Request) -> Split:
    if request.labels_per_class != 20:
        raise ValueError(
            f"protocol 'public' has 20 labels per class, not {request.labels_per_class}; "
            "choose 'cagcn' (40 or 60) or 'per-class' (any number)"
        )
    return Split(graph.splits["train"], graph.splits["val"], graph.splits["test"])


def cagcn(graph: GraphArrays, request: Request) -> Split:
    rate = request.labels_per_class
    if rate not in RATES:
        raise ValueError(
            f"protocol 'cagcn' has 20, 40 or 60 labels per class, not {rate}; choose 'per-class' for any number"
        )
    if request.name == "corafull":
        with np.load(Path(__file__).parent / "data" / "corafull_cagcn.npz", allow_pickle=False) as lists:
            train, val, test = lists[f"train{rate}"], lists[f"val{rate}"], lists["test"]
        leaked, repeats = np.isin(test, train).sum(), len(val) - len(np.unique(val))
        note = f"bug-compatible: {leaked} test nodes are also in training, {repeats} validation ids are repeats"
        return Split(train, val, test, (note,))
    train, val, test = graph.splits["train"], graph.splits["val"], graph.splits["test"]
    first = int(val.max()) + 1
    more = np.arange(first, first + (rate - 20) * graph.num_classes, dtype=train.dtype)
    note = f"bug-compatible: {len(more)} of the training nodes were taken in file order, not per class"
    return Split(np.concatenate([train, more]), val, test, (note,) if len(more) else ())


def cagcn_clean(graph: GraphArrays, request: Request) -> Split:
    split = cagcn(graph, request)
    test = split.test[~np.isin(split.test, split.train)]
    return Split(split.train, np.unique(split.val), test)


def per_class(graph: GraphArrays, request: Request) -> Split:
    rate, order = request.labels_per_class, _shuffled(graph, request)
    members = [order[graph.labels[order] == c] for c in range(graph.num_classes)]
    train = np.concatenate([nodes[: min(rate, len(nodes) // 2)] for nodes in members])
    small = sum(len(nodes) < 2 * rate for nodes in members)
    notes = [f"{small} classes have fewer than {2 * rate} nodes and give half of them to training"] if small else []
    # In this order the first nodes of small classes are all in training: validation would hardly have any.
    rest = np.random.default_rng([request.seed, request.split, 1]).permutation(order[~np.isin(order, train)])
    return _held_out(request, train, rest, notes)


def natural(graph: GraphArrays, request: Request) -> Split:
    order, count = _shuffled(graph, request), request.labels_per_class * graph.num_classes
    return _held_out(request, order[:count], order[count:], [])


def region(graph: GraphArrays, request: Request) -> Split:
    start = np.random.default_rng([request.seed, request.split, 2]).permutation(graph.num_nodes)
    return _shifted(graph, request, _breadth_first(graph, start))


def degree(graph: GraphArrays, request: Request) -> Split:
    return _shifted(graph, request, -np.bincount(graph.edge_index[0], minlength=graph.num_nodes))


def _shifted(graph: GraphArrays, request: Request, rank: np.ndarray) -> Split:
    """Training as `per_class`; validation nodes are drawn from the half of the other nodes that comes first by ``rank``."""
    split = per_class(graph, request)
    rest = np.random.default_rng([request.seed, request.split, 3]).permutation(np.union1d(split.val, split.test))
    rest = rest[np.argsort(rank[rest], kind="stable")]
    first, other = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    val = np.random.default_rng([request.seed, request.split, 4]).permutation(first)[:500]
    return Split(split.train, np.sort(val), np.sort(other), split.notes)


def _breadth_first(graph: GraphArrays, start: np.ndarray) -> np.ndarray:
    """Rank of every node in breadth-first searches, each from the next node of ``start`` that no earlier one has met."""
    n = graph.num_nodes
    adjacency = sp.csr_matrix((np.ones(graph.edge_index.shape[1], np.int8), tuple(graph.edge_index)), shape=(n, n))
    component = csgraph.connected_components(adjacency, directed=False)[1]
    _, first = np.unique(component[start], return_index=True)
    orders = [csgraph.breadth_first_order(adjacency, node, False, False) for node in start[np.sort(first)]]
    rank = np.empty(n, dtype=np.int64)
    rank[np.concatenate(orders)] = np.arange(n)
    return rank


def _shuffled(graph: GraphArrays, request: Request) -> np.ndarray:
    """The labelled nodes in random order."""
    if request.labels_per_class < 1:
        raise ValueError(f"labels_per_class must be at least 1, not {request.labels_per_class}")
    return np.random.default_rng([request.seed, request.split]).permutation(np.flatnonzero(graph.labelled))


def _held_out(request: Request, train: np.ndarray, rest: np.ndarray, notes: list[str]) -> Split:
    """500 of the rest for validation, at most half of it, and all others for test."""
    if len(rest) < 2:
        rate = request.labels_per_class
        raise ValueError(f"{request.name}: {rate} labels per class leave {len(rest)} nodes for validation and test")
    held = min(500, len(rest) // 2)
    notes = notes + ([f"only {held} validation nodes: the graph is too small for 500"] if held < 500 else [])
    return Split(np.sort(train), np.sort(rest[:held]), np.sort(rest[held:]), tuple(notes))


def gats(graph: GraphArrays, request: Request) -> Split:
    number, fold = divmod(request.split, 3)
    path = request.lists / f"gats_{request.name}.npz" if request.lists else None
    if path and path.exists():
        *folds, test = require_arrays(
            path, [f"split{number}_{part}" for part in ("fold0", "fold1", "fold2", "test")]
        ).values()
        notes: tuple[str, ...] = ()
    else:
        folds, test = _gats_rule(graph, np.random.default_rng([request.seed, number]))
        notes = ("GATS's published lists are not at hand: drawn by its rule with our own seed",)
    train = np.concatenate([folds[k] for k in range(3) if k != fold])
    return Split(train, folds[fold], test, notes)


def _gats_rule(graph: GraphArrays, rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """15 % of each class, dealt to the folds in turn; test is 85 % of what is left of the class."""
    order = rng.permutation(np.flatnonzero(graph.labelled))
    members = [order[graph.labels[order] == c] for c in range(graph.num_classes)]
    cuts = [int(0.15 * len(nodes)) for nodes in members]
    dealt = np.concatenate([nodes[:cut] for nodes, cut in zip(members, cuts)])
    left = [nodes[cut:] for nodes, cut in zip(members, cuts)]
    return [dealt[k::3] for k in range(3)], np.concatenate([nodes[: int(0.85 * len(nodes))] for nodes in left])


def geom_gcn(graph: GraphArrays, request: Request) -> Split:
    masks = graph.splits
    if "train_masks" not in masks:
        path = request.lists / f"geomgcn_{request.name}.npz" if request.lists else None
        if path is None or not path.exists():
            raise ValueError(
                f"protocol 'geom-gcn' for {request.name} needs geom-gcn's lists: set GRAPHCAL_DATA to a folder "
                f"that has splits/geomgcn_{request.name}.npz"
            )
        masks = require_arrays(path, ("train_masks", "val_masks", "test_masks"))
        check_splits(masks, graph.num_nodes, path)
    train, val, test = (np.flatnonzero(masks[f"{part}_masks"][request.split]) for part in ("train", "val", "test"))
    return Split(train, val, test)


def _shares(graph: GraphArrays, request: Request, train: float, val: float) -> Split:
    """A random partition of the labelled nodes; what is left after training and validation is test."""
    order = np.random.default_rng([request.seed, request.split]).permutation(np.flatnonzero(graph.labelled))
    a, b = round(train * len(order)), round((train + val) * len(order))
    return Split(np.sort(order[:a]), np.sort(order[a:b]), np.sort(order[b:]))


def linkx(graph: GraphArrays, request: Request) -> Split:
    path = request.lists / f"linkx_{request.name}.npz" if request.lists else None
    if path and path.exists():
        train, val, test = require_arrays(
            path, [f"split{request.split}_{part}" for part in ("train", "val", "test")]
        ).values()
        return Split(train, val, test)
    order = np.random.default_rng([request.seed, request.split]).permutation(np.flatnonzero(graph.labelled))
    a, b = int(0.50 * len(order)), int(0.50 * len(order)) + int(0.25 * len(order))  # LINKX rounds down
    note = "LINKX's published lists are not at hand: drawn by its rule with our own seed"
    return Split(np.sort(order[:a]), np.sort(order[a:b]), np.sort(order[b:]), (note,))


def random(graph: GraphArrays, request: Request) -> Split:
    return _shares(graph, request, 0.20, 0.10)


def release(graph: GraphArrays, request: Request) -> Split:
    order, (a, b) = _shuffled(graph, request), RELEASE_LABELS
    _, first = np.unique(graph.labels[order], return_index=True)
    order = np.concatenate([order[first], np.delete(order, first)])  # every class is in training
    if len(order) < 2 * (a + b):  # a small release keeps the shares
        a, b = len(order) * a // (2 * (a + b)), len(order) * b // (2 * (a + b))
    return Split(np.sort(order[:a]), np.sort(order[a : a + b]), np.sort(order[a + b :]))


def stratified(labels: np.ndarray, rng: np.random.Generator) -> Split:
    """60/20/20 of the labelled nodes with every class in training: for graphs that come without a split.

    The first node of each class trains; the others, shuffled and lined up by class, are dealt in turn:
    validation, test, training, training, training.
    """
    order = rng.permutation(np.flatnonzero(labels >= 0))
    order = order[np.argsort(labels[order], kind="stable")]
    first = np.concatenate([[True], labels[order][1:] != labels[order][:-1]])
    rest = order[~first]
    turn = np.arange(len(rest)) % 5
    train = np.concatenate([order[first], rest[turn >= 2]])
    return Split(np.sort(train), np.sort(rest[turn == 0]), np.sort(rest[turn == 1]))


@dataclass(frozen=True)
class Protocol:
    """One way to split, the graphs it fits, and how many splits it has."""

    draw: Callable[[GraphArrays, Request], Split]
    fits: tuple[str, ...]
    splits: int | None  # None: any number, `split` and `seed` choose
    source: str
    rates: tuple[int, ...] = (20,)  # the labels per class a card shows
    indicators: bool = False  # word counts become 0/1 and every row is normalised, whatever is usual for the graph


_PLANETOID = ("cora", "citeseer", "pubmed")
_WIKIPEDIA = ("chameleon", "squirrel", "chameleon-filtered", "squirrel-filtered")
_CAGCN = (*_PLANETOID, "corafull")
_DEBIAN = ("debian-bullseye", "debian-bookworm")  # and other releases: `catalog.listed_name`

PROTOCOLS: Mapping[str, Protocol] = MappingProxyType(
    {
        "public": Protocol(public, _PLANETOID, 1, "Planetoid's public split, arXiv:1603.08861"),
        "cagcn": Protocol(cagcn, _CAGCN, 1, "CaGCN, arXiv:2109.14285, bug-compatible", RATES),
        "cagcn-clean": Protocol(cagcn_clean, _CAGCN, 1, "CaGCN without leakage and repeats", RATES),
        "per-class": Protocol(per_class, tuple(NAMES), None, "L per class, 500 validation, rest test, seeded"),
        "natural": Protocol(natural, tuple(NAMES), None, "L · C labels at random, 500 validation, rest test, seeded"),
        "region": Protocol(region, tuple(NAMES), None, "as per-class, validation from one half of the graph", rates=()),
        "degree": Protocol(degree, tuple(NAMES), None, "as per-class, validation from well connected nodes", rates=()),
        "gats": Protocol(
            gats, tuple(NAMES), 15, "GATS, arXiv:2210.06391: 5 splits x 3 folds", rates=(), indicators=True
        ),
        "geom-gcn": Protocol(
            geom_gcn, (*_PLANETOID, *_WIKIPEDIA), 10, "ten 48/32/20 splits, arXiv:2002.05287", rates=()
        ),
        "linkx": Protocol(linkx, ("arxiv-year",), 5, "LINKX, arXiv:2110.14446: 50/25/25", rates=()),
        "release": Protocol(
            release, _DEBIAN, None, "5,000 training and 2,000 validation labels at random, seeded", rates=()
        ),
        "random": Protocol(
            random, tuple(NAMES), None, "20/10/70 at random, as GETS, arXiv:2410.09570, and WATS", rates=()
        ),
    }
)


def fitting(name: str) -> list[str]:
    """The protocols that fit a named graph."""
    return [key for key, protocol in PROTOCOLS.items() if listed_name(name) in protocol.fits]


def draw(protocol: str, graph: GraphArrays, request: Request) -> Split:
    """The split of a protocol, with nodes that have no label taken out of every list."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"unknown protocol {protocol!r}; {choices(protocol, PROTOCOLS)}")
    rule = PROTOCOLS[protocol]
    if listed_name(request.name) not in rule.fits:
        raise ValueError(
            f"protocol {protocol!r} does not fit {request.name}; choose among {', '.join(fitting(request.name))}"
        )
    if request.split < 0 or (rule.splits is not None and request.split >= rule.splits):
        valid = "any number from 0" if rule.splits is None else f"0 to {rule.splits - 1}"
        raise ValueError(f"protocol {protocol!r} has no split {request.split}; choose {valid}")
    split = rule.draw(graph, request)
    labelled = graph.labelled
    for part in ("train", "val", "test"):
        check_ids(getattr(split, part), graph.num_nodes, f"protocol {protocol!r} for {request.name}", part)
    train, val, test = (part[labelled[part]] for part in (split.train, split.val, split.test))
    left_out = sum(len(part) for part in (split.train, split.val, split.test)) - len(train) - len(val) - len(test)
    notes = (f"{left_out} nodes without a label were taken out of the published lists",) if left_out else ()
    return Split(train, val, test, split.notes + notes)
