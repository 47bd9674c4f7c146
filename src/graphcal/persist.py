"""Save a fitted calibration as safetensors with a JSON header, and bring it back. Never pickle.

The file holds the calibration's tensors; its metadata entry ``graphcal`` holds

    {"format": 2, "version": "0.1.0", "class": "Temperature", "num_classes": 7,
     "settings": {...}, "tensors": [...], "parts": {...}, "fitted_on": {...}}

``parts`` describes calibrations inside the calibration, in the same form; their tensors carry the part's name as a prefix. A
class is looked up among the known calibrations, never imported by a name from the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from torch import Tensor

from graphcal.core import Calibration
from graphcal.files import write_atomically

FORMAT = 2
# what a header says of a calibration, and of each of its parts; num_classes is null where the class does not say
KEYS: dict[str, type | tuple[type, ...]] = {
    "class": str,
    "num_classes": (int, type(None)),
    "settings": dict,
    "tensors": list,
    "parts": dict,
}


def save(calibration: Calibration, path: str | os.PathLike[str], reference: Mapping[str, Any] | None = None) -> Path:
    """Write ``calibration`` to ``path``. The file appears whole or not at all.

    ``reference`` is what its predictions looked like when it was fitted (`graphcal.metrics.reference_summary`): `graphcal watch`
    compares later ones with it.

    >>> import tempfile
    >>> import graphcal as gc
    >>> data = gc.load("citeseer")
    >>> out = gc.train(data, training=gc.Training(epochs=60), seeds=[0])[0].outputs
    >>> calibrate = gc.TemperatureScaling().fit(out, on=data.val_mask)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     restored = gc.restore(gc.save(calibrate, f"{folder}/ts.safetensors"))
    >>> bool((restored(out) == calibrate(out)).all())
    True
    """
    from safetensors.torch import save as to_bytes

    if not isinstance(calibration, Calibration):
        raise ValueError(
            f"save takes a fitted calibration; got {type(calibration).__name__}. A recipe is fitted first: "
            "recipe.fit(out, on=data.val_mask)"
        )
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"cannot save to {path}: the folder {path.parent} does not exist")
    try:
        header = json.dumps({"format": FORMAT, "version": _version(), **_described(calibration)})
    except TypeError as error:
        raise ValueError(
            f"{type(calibration).__name__} has a setting that JSON cannot hold: {error}; keep numbers in tensors"
        ) from None
    tensors = {name: t.detach().cpu().contiguous().clone() for name, t in calibration.state_dict().items()}
    metadata = {"graphcal": header} | ({} if reference is None else {"reference": json.dumps(dict(reference))})
    return write_atomically(path, to_bytes(tensors, metadata=metadata))


def read_reference(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The ``reference`` that a calibration was saved with."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise ValueError(f"no saved calibration at {os.fspath(path)}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        found = json.loads(metadata["reference"]) if "reference" in metadata else None
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{os.fspath(path)} is not a readable calibration: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(
            f"{os.fspath(path)} does not say what its predictions looked like when it was fitted: save it with "
            "gc.save(calibration, path, reference=gc.metrics.reference_summary(log_probs))"
        )
    return found


def restore(path: str | os.PathLike[str]) -> Calibration:
    """The calibration saved at ``path``, on the CPU and ready to use."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise ValueError(f"no saved calibration at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from None
    if "graphcal" not in metadata:
        raise ValueError(f"{path} is a safetensors file, but not a calibration saved by graphcal.save")
    try:
        header = json.loads(metadata["graphcal"])
        form = header["format"]
    except (json.JSONDecodeError, KeyError, TypeError):
        raise ValueError(f"{path} has a damaged graphcal header") from None
    if form != FORMAT:
        raise ValueError(
            f"{path} has format {form} (graphcal {header.get('version')}); this version reads format {FORMAT}"
        )
    return _built(header, tensors, path)


def _described(calibration: Calibration) -> dict[str, Any]:
    return {
        "class": key_of(type(calibration)),
        "num_classes": calibration.num_classes,
        "settings": calibration.settings,
        "tensors": [name for name, _ in calibration.named_buffers(recurse=False)],
        "parts": {name: _described(part) for name, part in _parts(calibration)},
        "fitted_on": calibration.fitted_on,
    }


def _parts(calibration: Calibration) -> Iterator[tuple[str, Calibration]]:
    return ((name, part) for name, part in calibration.named_children() if isinstance(part, Calibration))


def _built(header: Any, tensors: dict[str, Tensor], path: Path) -> Calibration:
    """The calibration a header describes, each of its claims checked."""
    for key, kind in KEYS.items():
        value = header.get(key, ...) if isinstance(header, dict) else ...
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{path} has a damaged graphcal header: no valid {key!r}")
    name, num_classes = header["class"], header["num_classes"]
    known = calibration_classes(name)
    if name not in known:
        raise ValueError(
            f"{path} holds a {name!r}, which is not known here; known: {', '.join(sorted(known))}. A calibrator "
            "from another package must be installed (or imported) first"
        )
    missing = [tensor for tensor in header["tensors"] if tensor not in tensors]
    if missing:
        raise ValueError(f"{path} is damaged: the header announces tensors that are not there: {', '.join(missing)}")
    state: dict[str, Any] = {tensor: tensors[tensor] for tensor in header["tensors"]}
    for part, described in header["parts"].items():
        inner = {key.removeprefix(f"{part}."): t for key, t in tensors.items() if key.startswith(f"{part}.")}
        state[part] = _built(described, inner, path)
        if state[part].num_classes not in (None, num_classes):
            raise ValueError(
                f"{path} is damaged: a calibration of {num_classes} classes holds one of {state[part].num_classes}"
            )
    state |= header["settings"]
    lacking = [field for field in _state_of(known[name]) if field not in state]
    if lacking:
        raise ValueError(f"{path} is damaged: a {name} without {', '.join(lacking)}")
    fit = header.get("fitted_on", {})
    if not isinstance(fit, dict):
        raise ValueError(f"{path} has a damaged graphcal header: no valid 'fitted_on'")
    return known[name](num_classes=num_classes, fitted_on=fit, **state)


def _state_of(cls: type[Calibration]) -> list[str]:
    """What a calibration of this class cannot do without: the fields it declares and gives no value."""
    return [field for field in vars(cls).get("__annotations__", {}) if not hasattr(cls, field)]


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


def _version() -> str:
    try:
        return version("graphcal")
    except PackageNotFoundError:
        return "unknown"
