"""Protocols by name: published tables differ in their splits, so a result states which one it used.

`PROTOCOLS` is the table: for each name the rule (in `splits`), the graphs it fits, how many splits it has, its source.

Departures: nodes without a label are in no mask, also where a published list names them: Citeseer's 15, which PyG
labels 0, are in GATS's and geom-gcn's lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from graphcal.datasets import splits
from graphcal.datasets.arrays import GraphArrays, check_ids
from graphcal.datasets.catalog import NAMES
from graphcal.datasets.splits import RATES, Request, Split
from graphcal.plugins import choices


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

PROTOCOLS: Mapping[str, Protocol] = MappingProxyType(
    {
        "public": Protocol(splits.public, _PLANETOID, 1, "Planetoid's public split, arXiv:1603.08861"),
        "cagcn": Protocol(splits.cagcn, _CAGCN, 1, "CaGCN, arXiv:2109.14285, bug-compatible", RATES),
        "cagcn-clean": Protocol(splits.cagcn_clean, _CAGCN, 1, "CaGCN without leakage and repeats", RATES),
        "per-class": Protocol(splits.per_class, tuple(NAMES), None, "L a class, 500 validation, rest test, seeded"),
        "natural": Protocol(
            splits.natural, tuple(NAMES), None, "L · C labels at random, 500 validation, rest test, seeded"
        ),
        "gats": Protocol(
            splits.gats, tuple(NAMES), 15, "GATS, arXiv:2210.06391: 5 splits x 3 folds", rates=(), indicators=True
        ),
        "geom-gcn": Protocol(
            splits.geom_gcn, (*_PLANETOID, *_WIKIPEDIA), 10, "ten 48/32/20 splits, arXiv:2002.05287", rates=()
        ),
        "linkx": Protocol(splits.linkx, ("arxiv-year",), 5, "LINKX, arXiv:2110.14446: 50/25/25", rates=()),
        "random": Protocol(
            splits.random, tuple(NAMES), None, "20/10/70 at random, as GETS, arXiv:2410.09570, and WATS", rates=()
        ),
    }
)


def fitting(name: str) -> list[str]:
    """The protocols that fit a named graph."""
    return [key for key, protocol in PROTOCOLS.items() if name in protocol.fits]


def draw(protocol: str, graph: GraphArrays, asked: Request) -> Split:
    """The split of a protocol, with nodes that have no label taken out of every list."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"unknown protocol {protocol!r}; {choices(protocol, PROTOCOLS)}")
    rule = PROTOCOLS[protocol]
    if asked.name not in rule.fits:
        raise ValueError(
            f"protocol {protocol!r} does not fit {asked.name}; choose among {', '.join(fitting(asked.name))}"
        )
    if asked.split < 0 or (rule.splits is not None and asked.split >= rule.splits):
        known = "any number from 0" if rule.splits is None else f"0 to {rule.splits - 1}"
        raise ValueError(f"protocol {protocol!r} has no split {asked.split}; choose {known}")
    split = rule.draw(graph, asked)
    labelled = graph.labelled
    for part in ("train", "val", "test"):
        check_ids(getattr(split, part), graph.num_nodes, f"protocol {protocol!r} for {asked.name}", part)
    train, val, test = (part[labelled[part]] for part in (split.train, split.val, split.test))
    left_out = sum(len(part) for part in (split.train, split.val, split.test)) - len(train) - len(val) - len(test)
    notes = (f"{left_out} nodes without a label were taken out of the published lists",) if left_out else ()
    return Split(train, val, test, split.notes + notes)
