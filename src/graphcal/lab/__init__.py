"""Train, compare and reproduce: datasets, backbones, learned baselines, the bench and the reproduction of the SCAR paper.

The product (`graphcal`) never imports this package; it works without it. Each name is imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcal.lab.datasets import load, read, synthetic
    from graphcal.lab.explanation import explain
    from graphcal.lab.models import BACKBONES
    from graphcal.lab.pipeline import run
    from graphcal.lab.training import NeighborSampler, Run, Training, cross_fit, param_groups, retrain, train
    from graphcal.lab.tuning import tune_decay

_WHERE = {
    "BACKBONES": "models",
    "NeighborSampler": "training",
    "Run": "training",
    "Training": "training",
    "cross_fit": "training",
    "explain": "explanation",
    "load": "datasets",
    "param_groups": "training",
    "read": "datasets",
    "retrain": "training",
    "run": "pipeline",
    "synthetic": "datasets",
    "train": "training",
    "tune_decay": "tuning",
}
_MODULES = ("baselines", "bench", "datasets", "models", "plots", "theory", "training", "tuning")

__all__ = [
    "BACKBONES",
    "NeighborSampler",
    "Run",
    "Training",
    "cross_fit",
    "explain",
    "load",
    "param_groups",
    "read",
    "retrain",
    "run",
    "synthetic",
    "train",
    "tune_decay",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"graphcal.lab.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module 'graphcal.lab' has no attribute {name!r}; it has {', '.join(__all__)}")
    globals()[name] = getattr(import_module(f"graphcal.lab.{_WHERE[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
