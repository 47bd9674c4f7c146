"""Named recipes: what was published, as differences from the defaults, each with its source.

    cagcn      the base models of CaGCN (Wang et al., NeurIPS 2021), from its official code; the default
    scar-code  what SCAR's official code trains, with the settings of the SCAR paper's two tables
    official   each backbone as its own paper's code trains it
    gats       the base models of GATS (Hsu et al., NeurIPS 2022), from its official code

A recipe is a TOML file in ``presets``: one table a backbone, inside it one a dataset and one a dataset with its labels a class
(``[gcn.cora]``, ``[gcn.cora-40]``), each added to what it stands in. Keys are those of `Training`; a table ``backbone`` holds
settings of the backbone, a table ``scar`` the published alpha and beta.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from graphcal.models import BACKBONES, Spec
from graphcal.training.settings import Training

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

RECIPES = ("cagcn", "scar-code", "official", "gats")


@dataclass(frozen=True)
class Preset:
    """A recipe for one backbone on one graph."""

    training: Training
    backbone: Spec
    scar: dict[str, float] = field(default_factory=dict)  # published alpha, beta
    sources: tuple[str, ...] = ()


def recipe(name: str, backbone: str, dataset: str | None = None, labels_per_class: int | None = None) -> Training:
    """The training settings of a recipe; `preset` gives the backbone's settings as well."""
    return preset(name, backbone, dataset, labels_per_class).training


def preset(name: str, backbone: str, dataset: str | None = None, labels_per_class: int | None = None) -> Preset:
    if name not in RECIPES:
        raise ValueError(f"unknown recipe {name!r}; choose among {', '.join(RECIPES)}")
    if backbone not in BACKBONES:
        raise ValueError(f"unknown backbone {backbone!r}; choose among {', '.join(BACKBONES)}")
    tables = _tables(name)
    if backbone not in tables:
        raise ValueError(f"recipe {name!r} does not say how to train {backbone!r}; it knows {', '.join(tables)}")
    chosen = [tables[backbone]]
    if dataset is not None:
        chosen += [tables[backbone].get(key, {}) for key in (dataset, f"{dataset}-{labels_per_class}")]
    training: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    scar: dict[str, float] = {}
    for table in chosen:
        training |= {k: v for k, v in table.items() if k != "source" and not isinstance(v, dict)}
        settings |= table.get("backbone", {})
        scar |= table.get("scar", {})
    if training.get("patience") == 0:  # TOML has no null
        training["patience"] = None
    sources = tuple(table["source"] for table in chosen if "source" in table)
    return Preset(Training(**training), BACKBONES[backbone](**settings), scar, sources)


@cache
def _tables(name: str) -> dict[str, Any]:
    return tomllib.loads((files("graphcal.training") / "presets" / f"{name}.toml").read_text("utf-8"))
