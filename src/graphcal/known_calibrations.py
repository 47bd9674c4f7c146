"""The calibration classes that are loaded, by the key they have in files; what a class declares, and whether values fit it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.core import Calibration, Outputs
from graphcal.files import WORKING, check_memory

PLAIN: dict[str, type | tuple[type, ...]] = {
    "Tensor": Tensor,
    "Calibration": Calibration,
    "bool": bool,
    "int": int,
    "float": (int, float),
    "str": str,
    "list": list,
    "tuple": list,
    "dict": dict,
    "None": type(None),
}


def key_of(cls: type[Calibration]) -> str:
    """The class's name in a file: plain for our own, with its module for others, so that two packages cannot collide."""
    ours = cls.__module__.split(".")[0] == "graphcal"
    return cls.__name__ if ours else f"{cls.__module__}:{cls.__qualname__}"


def calibration_classes(wanted: str | None = None) -> dict[str, type[Calibration]]:
    """Every calibration class that is loaded, by its key. Installed plug-ins are loaded when ``wanted`` is not among ours."""
    import graphcal.methods as ours

    if wanted is not None and wanted not in _loaded():
        for name in ours.CALIBRATORS:
            with suppress(Exception):  # a broken plug-in is no reason to refuse the calibration of another one
                ours.CALIBRATORS[name]
    return _loaded()


def _loaded() -> dict[str, type[Calibration]]:
    known: dict[str, type[Calibration]] = {}
    queue: list[type[Calibration]] = [Calibration]
    while queue:
        for cls in queue.pop().__subclasses__():
            known[key_of(cls)] = cls
            queue.append(cls)
    return known


def fields_of(cls: type[Calibration]) -> dict[str, str]:
    """What a calibration of this class is made of: the fields it declares, with their types as they are written."""
    fields: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, Calibration) and base is not Calibration:
            fields |= {name: _written(kind) for name, kind in vars(base).get("__annotations__", {}).items()}
    return {name: kind for name, kind in fields.items() if not kind.startswith(("ClassVar", "typing.ClassVar"))}


def _written(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def misfit(cls: type[Calibration], state: Mapping[str, Any]) -> str:
    """What is wrong with this state of a class, in words: fields it lacks, does not know, or has of another type; else ''."""
    fields = fields_of(cls)
    lacking = [name for name in fields if name not in state and not hasattr(cls, name)]
    if lacking:
        return f"without {', '.join(lacking)}"
    unknown = [name for name in state if name not in fields]
    if unknown:
        return f"with {', '.join(unknown)}, which it does not have; it has {', '.join(fields)}"
    for name, value in state.items():
        kinds = [PLAIN.get(part.split("[")[0].strip()) for part in re.split(r"\|(?![^\[]*\])", fields[name])]
        if None in kinds:
            continue  # a type of its author's own
        allowed = tuple(k for kind in kinds for k in (kind if isinstance(kind, tuple) else (kind,)))
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):  # type: ignore[arg-type]
            return f"whose {name} is {type(value).__name__}, not {fields[name]}"
        if isinstance(value, Tensor) and value.is_floating_point() and not torch.isfinite(value).all():
            return f"whose {name} is not finite"
        keys = value if name == "train_keys" and isinstance(value, Tensor) else None
        if keys is not None and (keys.dtype != torch.long or (keys.dim() != 1 and keys.shape[1:] != (3,))):
            return f"whose train_keys are {tuple(keys.shape)} of {keys.dtype}, not (n, 3) of torch.int64"
    return ""


def trial(calibration: Calibration, path: Path) -> None:
    """Apply a restored calibration to three nodes: tensors of a wrong shape are found now, not at the first customer."""
    if calibration.needs.whole_graph or calibration.num_classes is None:
        return
    classes = calibration.num_classes
    check_memory(path, 3 * classes * WORKING, f"three nodes of {classes:,} classes")
    try:
        logits = torch.linspace(-1, 1, 3 * classes).reshape(3, classes)
        graph = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
        with torch.no_grad():
            log_probs = calibration(Outputs(logits, graph))
        fits = log_probs.shape == logits.shape and bool(torch.isfinite(log_probs).all())
    except (RuntimeError, IndexError, ValueError, TypeError, KeyError, AttributeError, AssertionError) as error:
        raise ValueError(f"{path} is damaged: its {type(calibration).__name__} cannot be applied ({error})") from None
    if not fits:
        raise ValueError(f"{path} is damaged: its {type(calibration).__name__} gives no log-probabilities")
