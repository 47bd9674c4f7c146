"""Training settings, and the published sets of some papers with their sources.

A `Replica` is one of several runs that train together: its seed, and what it does not share with the others.

The defaults are CaGCN's settings for a GCN (Wang et al., NeurIPS 2021, arXiv 2109.14285, and its official code): 64 hidden
units, dropout 0.5 on the hidden layer only, Adam at 0.01 with coupled L2 5e-4 on all parameters, at most 2,000 epochs, patience
100 on the validation cross-entropy, best state restored, initial weights uniform in +-1/sqrt(out).

    cagcn      the base models of CaGCN, from its official code; the default
    official   each backbone as its own paper's code trains it
    gats       the base models of GATS (Hsu et al., NeurIPS 2022), from its official code

Each of these is a TOML file of differences from the defaults: a table per backbone, inside it one per dataset and one per dataset
with its labels per class (``[gcn.cora]``, ``[gcn.cora-40]``), each added to what it stands in. Keys are those of `Training`; a
table ``backbone`` holds settings of the backbone, a table ``scar`` the published alpha and beta.

Other packages add files by an entry point in the group ``graphcal.trainings`` that names a path. A backbone of another package
may bring its own tables: ``published = {"cagcn": {...}}`` in its class.

`param_groups` is SCAR's class-centroid-level lever for people with their own model and loop.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data

from graphcal.checks import check_mask
from graphcal.lab.models import BACKBONES, Backbone, name_of
from graphcal.lab.training.losses import CrossEntropy, Loss, loss_of
from graphcal.plugins import Names


def param_groups(
    model: nn.Module,
    weight_decay: float,
    final_weight_decay: float,
    final: str | nn.Module | None = None,
    weights_only: bool = False,
) -> list[dict[str, Any]]:
    """Two optimiser groups: everything else with ``weight_decay``, the final layer with ``final_weight_decay``.

    The final layer is ``final`` (a module or its dotted name), else the attribute ``head``, else the last module with a weight.
    All of its parameters move to the second group: of a GAT also attention vectors and bias, which the paper does not mention.
    With ``weights_only`` only weight matrices do, and the others keep ``weight_decay``.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    >>> optimizer = torch.optim.Adam(param_groups(model, 5e-4, 1e-4), lr=0.01)
    >>> [group["weight_decay"] for group in optimizer.param_groups]
    [0.0005, 0.0001]
    """
    last = _final_module(model, final)
    named = last.named_parameters()
    moved = [p for name, p in named if not weights_only or name.rpartition(".")[2].startswith("weight")]
    rest = [p for p in model.parameters() if all(p is not one for one in moved)]
    return [
        {"params": rest, "weight_decay": weight_decay},
        {"params": moved, "weight_decay": final_weight_decay},
    ]


def _final_module(model: nn.Module, final: str | nn.Module | None) -> nn.Module:
    names: dict[str, nn.Module] = {name: module for name, module in model.named_modules() if name}
    if isinstance(final, str):
        if final not in names:
            raise ValueError(f"final={final!r} is not a module of {type(model).__name__}; it has {', '.join(names)}")
        return names[final]
    if final is not None:
        if all(final is not module for module in names.values()):
            raise ValueError(f"final={type(final).__name__} is not a module of {type(model).__name__}")
        return final
    head = getattr(model, "head", None)
    if isinstance(head, nn.Module):
        return head
    # A convolution keeps its weight in a Linear inside it: the outermost module that holds the last weight is the layer.
    weighted = [name for name, module in names.items() if getattr(module, "weight", None) is not None]
    if not weighted:
        raise ValueError(f"{type(model).__name__} has no module with a weight; name the final layer with final=")
    name = weighted[-1]
    outer = name.rpartition(".")[0]
    holds_own = outer in names and any(True for _ in names[outer].parameters(recurse=False))
    return names[outer] if holds_own else names[name]


if sys.version_info >= (3, 11):
    from importlib.resources.abc import Traversable

    import tomllib
else:
    from importlib.abc import Traversable

    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]


MONITORS = ("loss", "refinement", "accuracy", "both")


@dataclass(frozen=True)
class Training:
    """The settings of a training; the defaults are those of CaGCN's GCN.

    ``final_weight_decay`` is SCAR's class-centroid-level lever (lambda_K of the paper): the decay of the final layer alone.
    ``dataclasses.asdict`` writes it as plain data, `Training.from_dict` reads it back.

    >>> Training(epochs=200, final_weight_decay=1e-4).lr
    0.01
    """

    hidden_channels: int = 64  # units of a hidden layer (of each head, for GAT)
    dropout: float = 0.5  # on hidden layers
    input_dropout: float = 0.0  # on the features
    init: str = "uniform"  # graphcal.lab.engine.layers.INITS
    lr: float = 0.01
    final_lr: float | None = None  # of the final layer; None: lr
    weight_decay: float = 5e-4
    final_weight_decay: float | None = None  # lambda_K; None: weight_decay
    epochs: int = 2000
    patience: int | None = 100  # epochs without improvement; None: train to the end
    monitor: str = "loss"  # on validation nodes: loss, refinement, accuracy, or both (see loop.py)
    loss: Loss = field(default_factory=CrossEntropy)

    def __post_init__(self) -> None:
        if self.monitor not in MONITORS:
            raise ValueError(f"monitor={self.monitor!r} is not one of {', '.join(MONITORS)}")
        if not isinstance(self.loss, Loss):
            raise ValueError(f"loss={self.loss!r} is not a loss: give CrossEntropy(), AULS(...), or Training.from_dict")
        for name in ("dropout", "input_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1); got {getattr(self, name)}")
        for name in ("hidden_channels", "epochs", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        for name in ("lr", "final_lr", "weight_decay", "final_weight_decay"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must not be negative; got {value}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Training:
        """Build settings from plain data: the defaults with ``values`` changed. A loss is a name or a table with its name.

        >>> Training.from_dict({"epochs": 500, "loss": {"name": "au-ls", "epsilon": -0.3}}).loss
        AULS(epsilon=-0.3, gamma=0.5)
        """
        return cls().updated(values)

    def updated(self, values: Mapping[str, Any]) -> Training:
        """The same training with ``values``, plain data as in `from_dict`, changed.

        >>> Training(epochs=200).updated({"dropout": 0.8}).epochs
        200
        """
        names = [f.name for f in fields(self)]
        unknown = [name for name in values if name not in names]
        if unknown:
            raise ValueError(f"a training has no setting {', '.join(unknown)}; it has {', '.join(names)}")
        loss = {"loss": loss_of(values["loss"])} if "loss" in values else {}
        return replace(self, **{**values, **loss})


@dataclass(frozen=True, eq=False)
class Replica:
    """One run among many: its seed, and where it differs from the common `Training` and from the graph's own masks."""

    seed: int
    final_weight_decay: float | None = None  # None: the training's
    weight_decay: float | None = None  # None: the training's
    train_mask: Tensor | None = None  # (N,) None: the graph's
    val_mask: Tensor | None = None  # (N,) None: the graph's

    def weight_decays(self, training: Training) -> tuple[float, float]:
        """(decay of all layers but the last, decay of the last)"""
        decay = training.weight_decay if self.weight_decay is None else self.weight_decay
        for final in (self.final_weight_decay, training.final_weight_decay):
            if final is not None:
                return decay, final
        return decay, decay

    def masks(self, data: Data) -> tuple[Tensor, Tensor]:
        """(training nodes, validation nodes), checked"""
        checked = []
        for name in ("train_mask", "val_mask"):
            mask = getattr(self, name) if getattr(self, name) is not None else data.get(name)
            if mask is None:
                raise ValueError(f"the graph has no {name}: give it one, as a boolean tensor with one entry per node")
            checked.append(check_mask(mask, int(data.num_nodes), name))
        train, val = checked
        both = (train & val).nonzero().flatten()
        if len(both):
            raise ValueError(
                f"train_mask and val_mask share {len(both)} nodes (first: node {int(both[0])}): early stopping needs nodes the "
                "model is not trained on"
            )
        return train, val


_FOLDER = files("graphcal.lab.training") / "published_settings"

TRAININGS: Names[Traversable] = Names(
    "training",
    {name: _FOLDER / f"{name}.toml" for name in ("cagcn", "official", "gats")},
    method="read_text",
    signature="read_text(): it is not the path of a TOML file",
)


@dataclass(frozen=True)
class Published:
    """Published settings of one backbone on one graph."""

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
    class_tables: Mapping[str, Any] = getattr(BACKBONES[backbone], "published", {})
    table = tables.get(backbone, class_tables.get(name))
    if table is None:
        raise ValueError(f"training {name!r} does not say how to train {backbone!r}; it knows {', '.join(tables)}")
    levels = [table]
    if dataset is not None:
        levels += [table.get(key, {}) for key in (dataset, f"{dataset}-{labels_per_class}")]
    training: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    scar: dict[str, float] = {}
    for part in levels:
        training |= {k: v for k, v in part.items() if k != "source" and (k == "loss" or not isinstance(v, dict))}
        settings |= part.get("backbone", {})
        scar |= part.get("scar", {})
    if training.get("patience") == 0:  # TOML has no null
        training["patience"] = None
    sources = tuple(part["source"] for part in levels if "source" in part)
    return Published(Training.from_dict(training), BACKBONES[backbone](**settings), scar, sources)


def default_training(backbone: Backbone) -> Training:
    """Settings of `train` if none are given: CaGCN's for the backbones it covers, else the defaults."""
    name = name_of(backbone)
    has_table = name in BACKBONES and (name in _tables("cagcn") or "cagcn" in getattr(backbone, "published", {}))
    return published("cagcn", name).training if has_table else Training()


@cache
def _tables(name: str) -> dict[str, Any]:
    tables: dict[str, Any] = tomllib.loads(TRAININGS[name].read_text("utf-8"))
    return tables
