"""Trainings as some paper or its code had them, each with its source.

    cagcn      the base models of CaGCN (Wang et al., NeurIPS 2021), from its official code; the default
    official   each backbone as its own paper's code trains it
    gats       the base models of GATS (Hsu et al., NeurIPS 2022), from its official code

Each is a TOML file of differences from the defaults: a table per backbone, inside it one per dataset and one per dataset with its
labels per class (``[gcn.cora]``, ``[gcn.cora-40]``), each added to what it stands in. Keys are those of `Training`; a table
``backbone`` holds settings of the backbone, a table ``scar`` the published alpha and beta.

Other packages add files by an entry point in the group ``graphcal.trainings`` that names a path. A backbone of another package
may bring its own tables: ``published = {"cagcn": {...}}`` in its class.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from graphcal.models import BACKBONES, Backbone, name_of
from graphcal.plugins import Names
from graphcal.training.settings import Training

if sys.version_info >= (3, 11):
    from importlib.resources.abc import Traversable

    import tomllib
else:
    from importlib.abc import Traversable

    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

_FOLDER = files("graphcal.training") / "published_settings"

TRAININGS: Names[Traversable] = Names(
    "training",
    {name: _FOLDER / f"{name}.toml" for name in ("cagcn", "official", "gats")},
    method="read_text",
    signature="read_text(): it is not the path of a TOML file",
)


@dataclass(frozen=True)
class Published:
    """What was published for one backbone on one graph."""

    training: Training
    backbone: Backbone
    scar: dict[str, float] = field(default_factory=dict)  # alpha, beta
    sources: tuple[str, ...] = ()


def published(name: str, backbone: str, dataset: str | None = None, labels_per_class: int | None = None) -> Published:
    """The published training ``name`` (see `TRAININGS`) of a backbone, with what it says about a dataset.

    >>> published("official", "gcn").training.hidden_channels
    16
    """
    tables = _tables(name)
    own: Mapping[str, Any] = getattr(BACKBONES[backbone], "published", {})
    table = tables.get(backbone, own.get(name))
    if table is None:
        raise ValueError(f"training {name!r} does not say how to train {backbone!r}; it knows {', '.join(tables)}")
    chosen = [table]
    if dataset is not None:
        chosen += [table.get(key, {}) for key in (dataset, f"{dataset}-{labels_per_class}")]
    training: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    scar: dict[str, float] = {}
    for part in chosen:
        training |= {k: v for k, v in part.items() if k != "source" and (k == "loss" or not isinstance(v, dict))}
        settings |= part.get("backbone", {})
        scar |= part.get("scar", {})
    if training.get("patience") == 0:  # TOML has no null
        training["patience"] = None
    sources = tuple(part["source"] for part in chosen if "source" in part)
    return Published(Training.from_dict(training), BACKBONES[backbone](**settings), scar, sources)


def default_training(backbone: Backbone) -> Training:
    """What `train` uses when nothing is given: CaGCN's for backbones that it says something about, else the defaults."""
    name = name_of(backbone)
    known = name in BACKBONES and (name in _tables("cagcn") or "cagcn" in getattr(backbone, "published", {}))
    return published("cagcn", name).training if known else Training()


@cache
def _tables(name: str) -> dict[str, Any]:
    tables: dict[str, Any] = tomllib.loads(TRAININGS[name].read_text("utf-8"))
    return tables
