"""graphcal makes a graph neural network's confidence honest: measure the error, repair it, say how sure the repair is.

The names below are the public surface. Each is imported when first used, so that ``graphcal --help`` does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from graphcal.core import Calibration, FinalLayer, Outputs, Recipe
    from graphcal.datasets import load, read, synthetic
    from graphcal.explanation import explain
    from graphcal.graphs import structure
    from graphcal.methods import CALIBRATORS, SCAR, GraphScaling, TemperatureScaling
    from graphcal.metrics import Measurement, evaluate
    from graphcal.models import BACKBONES
    from graphcal.observation import observe
    from graphcal.persist import restore, save
    from graphcal.pipeline import run
    from graphcal.reports import report
    from graphcal.serving import CalibratedModel
    from graphcal.study import Study
    from graphcal.training import Run, Training, param_groups, train
    from graphcal.tuning import tune_decay

_WHERE = {
    "BACKBONES": "models",
    "CALIBRATORS": "methods",
    "CalibratedModel": "serving",
    "Calibration": "core",
    "FinalLayer": "core",
    "GraphScaling": "methods",
    "Measurement": "metrics",
    "Outputs": "core",
    "Recipe": "core",
    "Run": "training",
    "SCAR": "methods",
    "Study": "study",
    "TemperatureScaling": "methods",
    "Training": "training",
    "evaluate": "metrics",
    "explain": "explanation",
    "load": "datasets",
    "observe": "observation",
    "param_groups": "training",
    "read": "datasets",
    "report": "reports",
    "restore": "persist",
    "run": "pipeline",
    "save": "persist",
    "structure": "graphs",
    "synthetic": "datasets",
    "train": "training",
    "tune_decay": "tuning",
}

_MODULES = (
    "models",
    "bench",
    "methods",
    "core",
    "datasets",
    "graphs",
    "metrics",
    "plots",
    "theory",
    "training",
    "tuning",
)

__all__ = [*sorted(_WHERE), "__version__"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"graphcal.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module 'graphcal' has no attribute {name!r}; it has {', '.join(sorted(_WHERE))}")
    value = getattr(import_module(f"graphcal.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE, *_MODULES])
