"""graphcal makes a graph neural network's confidence honest: measure the error, repair it, say how sure the repair is.

The names below are the public surface; ``__init__.pyi`` says the same to editors and type checkers. Each is imported when first
used, so that ``graphcal --help`` does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0.dev0"

_WHERE = {
    "CALIBRATORS": "methods",
    "CalibratedModel": "serving",
    "Calibration": "core",
    "Decision": "decisions",
    "FinalLayer": "core",
    "GraphScaling": "methods",
    "Measurement": "metrics",
    "Outputs": "core",
    "Recipe": "core",
    "SCAR": "methods",
    "Study": "study",
    "TemperatureScaling": "methods",
    "alerts": "alert_table",
    "calibrate": "tables.calibration",
    "count": "decisions",
    "decide": "decisions",
    "estimate": "decisions",
    "evaluate": "metrics",
    "example": "_example",
    "export": "tables.writing",
    "observe": "observation",
    "report": "reports",
    "restore": "saving",
    "save": "saving",
    "structure": "graphs",
}

_MODULES = (
    "lab",
    "methods",
    "core",
    "decisions",
    "graphs",
    "metrics",
    "plots",
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
    return sorted([*_WHERE, *_MODULES, "__version__"])
