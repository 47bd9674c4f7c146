"""Save a fitted calibration as safetensors with a JSON header, and bring it back. Never pickle.

The file holds the calibration's tensors; its metadata entry ``graphcal`` holds

    {"format": 1, "class": "Temperature", "version": "0.1.0", "classes": 7, "settings": {...}, "tensors": [...], "parts": {...}}

``parts`` describes calibrations inside the calibration, in the same form; their tensors carry the part's name as a prefix. A
class is looked up among the known calibrations, never imported by a name from the file.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from torch import Tensor

from graphcal.core import Calibration

FORMAT = 1


def save(calibration: Calibration, path: str | os.PathLike[str]) -> Path:
    """Write ``calibration`` to ``path``. The file appears whole or not at all."""
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
    content = to_bytes(tensors, metadata={"graphcal": header})
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


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
    parts = {name: _described(part) for name, part in _parts(calibration)}
    sizes = {part["classes"] for part in parts.values()}
    classes = getattr(calibration, "classes", None) or (sizes.pop() if len(sizes) == 1 else None)
    return {
        "class": key_of(type(calibration)),
        "classes": classes,
        "settings": calibration.settings,
        "tensors": [name for name, _ in calibration.named_buffers(recurse=False)],
        "parts": parts,
    }


def _parts(calibration: Calibration) -> Iterator[tuple[str, Calibration]]:
    return ((name, part) for name, part in calibration.named_children() if isinstance(part, Calibration))


def _built(header: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> Calibration:
    known = calibration_classes(header.get("class"))
    if header.get("class") not in known:
        raise ValueError(
            f"{path} holds a {header.get('class')!r}, which is not known here; known: {', '.join(sorted(known))}. A calibrator "
            "from another package must be installed (or imported) first"
        )
    missing = [name for name in header["tensors"] if name not in tensors]
    if missing:
        raise ValueError(f"{path} is damaged: the header announces tensors that are not there: {', '.join(missing)}")
    own = {name: tensors[name] for name in header["tensors"]}
    parts: dict[str, Calibration] = {}
    for name, described in header["parts"].items():
        prefix = f"{name}."
        inner = {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
        parts[name] = _built(described, inner, path)
    return known[header["class"]](**own, **parts, **header["settings"])


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
