"""Save a fitted calibration, or a calibrated model, as safetensors with a JSON header, and bring it back. Never pickle.

The file holds the calibration's tensors. Its metadata entry ``graphcal`` is the header,

    {"format": 4, "versions": {"graphcal": "0.2.0", "torch": ...}, "class": "Temperature", "num_classes": 7,
     "fitted_on": {"fitting_nodes": 500, "nodes": 2708, "fingerprint": ..., "class_names": [...]},
     "settings": {...}, "tensors": [...], "parts": {...}}

and its entry ``sha256`` a checksum of header and tensors. ``parts`` describes calibrations inside the calibration, in the same
form; their tensors carry the part's name as a prefix. A model's own state comes along under the prefix ``model:``, the tensors
that a `CalibratedModel` was given (``context``, ``train_mask``) under the prefix ``served:``.

Nothing in a file is run or imported: a class is looked up among the loaded calibrations, and gets the tensors and settings that
it declares, of the types that it declares, or the file is refused (`ValueError`). So is a file of an earlier format.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphcal import __version__
from graphcal.core import Calibration
from graphcal.files import WORKING, check_memory, file_errors, tensor_checksum, write_atomically
from graphcal.graphs import TracedSums

if TYPE_CHECKING:
    from graphcal.serving import CalibratedModel

FORMAT = 4
PACKAGES = ("torch", "torch_geometric", "numpy", "scipy", "scikit-learn")  # numbers depend on them
MODEL = "model:"  # before the names of a model's own tensors
SERVED = "served:"  # before the names of the tensors that a CalibratedModel was given
# what a header says of a calibration, and of each of its parts; num_classes is null where the class does not say
KEYS: dict[str, type | tuple[type, ...]] = {
    "class": str,
    "num_classes": (int, type(None)),
    "fitted_on": dict,
    "settings": dict,
    "tensors": list,
    "parts": dict,
}
# what `graphcal.core.fitted_on` writes; other entries are read by those who wrote them
FITTED_ON: dict[str, type | tuple[type, ...]] = {
    "fitting_nodes": int,
    "nodes": int,
    "edges": (int, type(None)),
    "undirected": (bool, type(None)),
    "fingerprint": (str, type(None)),
    "training_nodes": (int, type(None)),
    "class_names": (list, type(None)),
}
# types that a field may declare
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


@lru_cache(maxsize=1)
def installed_versions() -> dict[str, str]:
    """Versions of graphcal, Python and the packages that numbers depend on."""
    versions = {name: metadata.version(name) for name in PACKAGES}
    return {"graphcal": __version__, "python": platform.python_version(), **versions}


def save(
    calibration: Calibration | CalibratedModel,
    path: str | os.PathLike[str],
    reference: Mapping[str, Any] | None = None,
) -> Path:
    """Save a calibration, or a model with its calibration, as safetensors. The file appears complete or not at all.

    Parameters
    ----------
    calibration : Calibration or CalibratedModel
        Of a `CalibratedModel` the file holds the model's state, ``context``, ``train_mask``, ``pick`` and ``node_type``.
        Functions (``as_graph``, a callable ``pick``) are refused.
    path : path
        File to write.
    reference : mapping, optional
        Summary of the predictions at fitting time (`graphcal.metrics.reference_summary`). `graphcal watch` and `graphcal
        score` compare new predictions with it. A calibration of `graphcal.calibrate` has one already.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> import graphcal
    >>> out = graphcal.example()
    >>> data = out.graph
    >>> calibrate = graphcal.TemperatureScaling().fit(out, on=data.val_mask)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     restored = graphcal.restore(graphcal.save(calibrate, f"{folder}/ts.safetensors"))
    >>> bool((restored(out) == calibrate(out)).all())
    True
    """
    from safetensors.torch import save as to_bytes

    model: CalibratedModel | None = None
    if not isinstance(calibration, Calibration):
        from graphcal.serving import CalibratedModel  # imports PyG

        if isinstance(calibration, CalibratedModel):
            model, calibration = calibration, calibration.calibration
    if not isinstance(calibration, Calibration):
        raise ValueError(
            f"save takes a fitted calibration or a CalibratedModel; got {type(calibration).__name__}. A recipe is fitted "
            "first: recipe.fit(out, on=data.val_mask)"
        )
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"cannot save to {path}: the folder {path.parent} does not exist")
    about = {"format": FORMAT, "versions": installed_versions(), **_described(calibration)}
    state = dict(calibration.state_dict())
    if model is not None:
        functions = [name for name, value in model.settings.items() if callable(value)]
        if functions:
            raise ValueError(
                f"{functions[0]}= of the CalibratedModel is a function, which a file cannot hold. Save its calibration alone, "
                "and make the CalibratedModel again after restoring that"
            )
        about["model"] = {"class": type(model.model).__name__, **model.settings}
        state |= {MODEL + name: value for name, value in model.model.state_dict().items()}
        state |= {SERVED + name: value for name, value in model.tensors.items()}
    try:
        header = json.dumps(about, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{type(calibration).__name__} has a setting that JSON cannot hold: {error}; keep numbers in tensors"
        ) from None
    tensors = {name: t.detach().cpu().contiguous().clone() for name, t in state.items()}
    reference = calibration.fitted_on.get("reference") if reference is None else reference
    metadata = {"graphcal": header} | ({} if reference is None else {"reference": json.dumps(dict(reference))})
    metadata["sha256"] = checksum(metadata, tensors)
    return write_atomically(path, to_bytes(tensors, metadata=metadata))


def read_reference(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the ``reference`` that a calibration was saved with, checked as `restore` checks its file."""
    reference = find_reference(path)
    if reference is None:
        raise ValueError(
            f"{path} does not say what its predictions looked like when it was fitted: save it with "
            "graphcal.save(calibration, path, reference=graphcal.metrics.reference_summary(log_probs))"
        )
    return reference


def find_reference(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Read the ``reference`` of a saved calibration; None where it has none."""
    from graphcal.metrics.references import reference_fault  # serving does without the metrics

    path = Path(path)
    metadata, _ = _checked(path)
    try:
        reference: Any = json.loads(metadata.get("reference", "null"))
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is damaged: its reference is not JSON") from None
    if reference is None:
        return None
    fault = reference_fault(reference)
    if fault:
        raise ValueError(f"{path} is damaged: in its reference, {fault}")
    return dict(reference)


def restore(path: str | os.PathLike[str], model: nn.Module | None = None) -> Any:
    """Load a calibration, on the CPU and ready to use.

    Nothing in a file can run code: it is safetensors, checked before it is used.

    Parameters
    ----------
    path : path
        File written by `save`.
    model : nn.Module, optional
        For a file with a model: a module of the same architecture, whose parameters are filled in.

    Returns
    -------
    Calibration or CalibratedModel
        A `CalibratedModel` if the file holds a model.

    Examples
    --------
    >>> import tempfile, graphcal
    >>> out = graphcal.example()
    >>> data = out.graph
    >>> calibrate = graphcal.TemperatureScaling().fit(out, on=data.val_mask)
    >>> path = graphcal.save(calibrate, Path(tempfile.mkdtemp()) / "ts.safetensors")
    >>> bool((graphcal.restore(path)(out) == calibrate(out)).all())
    True
    """
    path = Path(path)
    header, tensors = _read(path)
    description = header.get("model")
    prefixes = () if description is None else (MODEL, SERVED)
    calibration = _built(header, {name: t for name, t in tensors.items() if not name.startswith(prefixes)}, path)
    smoke_test(calibration, path)
    calibration.file = str(path)
    if description is None:
        if model is not None:
            raise ValueError(f"{path} holds a calibration without a model: CalibratedModel(model, restore(path))")
        return calibration
    if not isinstance(description, dict) or not all(type(value) in (str, int) for value in description.values()):
        raise ValueError(f"{path} has a damaged graphcal header: no valid 'model'")
    if model is None:
        raise ValueError(
            f"{path} holds a {description.get('class')} with its calibration: give a module of that architecture, "
            f"restore(path, model={description.get('class')}(...))"
        )
    try:
        model.load_state_dict(_part(tensors, MODEL))
    except RuntimeError as error:
        raise ValueError(f"{path} does not fit {type(model).__name__}: {error}") from None
    from graphcal.serving import CalibratedModel

    settings = {name: description[name] for name in CalibratedModel.SETTINGS if name in description}
    given = _part(tensors, SERVED)
    if not set(given) <= set(CalibratedModel.TENSORS):
        raise ValueError(f"{path} is damaged: a CalibratedModel with {', '.join(given)}")
    try:
        return CalibratedModel(model, calibration, **settings, **given)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Any]:
    """The tensors whose names begin with ``prefix``, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def checksum(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Compute the SHA-256 of the metadata without this sum, and of every tensor."""
    header = {name: text for name, text in metadata.items() if name != "sha256"}
    return tensor_checksum(tensors, json.dumps(header, sort_keys=True))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors."""
    metadata, tensors = _checked(path)
    return json.loads(metadata["graphcal"]), tensors


def _checked(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of a file that this version reads and that matches its checksum."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ValueError(f"no saved calibration at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from None
    if "graphcal" not in metadata:
        raise ValueError(f"{path} is a safetensors file, but not a calibration saved by graphcal.save")
    try:
        header = json.loads(metadata["graphcal"])
        form = header["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{path} has a damaged graphcal header") from None
    if type(form) is int and 0 < form < FORMAT:
        raise ValueError(f"{path}: Made by an earlier version. Fit again.")
    if form != FORMAT:
        raise ValueError(f"{path} has format {form!r} (graphcal {_writer(header)}); this version reads format {FORMAT}")
    if metadata.get("sha256") != checksum(metadata, tensors):
        raise ValueError(f"{path} is damaged: its contents do not match its checksum")
    return metadata, tensors


def _writer(header: Any) -> Any:
    """The version that a header names, whatever else is wrong with it."""
    versions = header.get("versions") if isinstance(header, dict) else None
    return versions.get("graphcal") if isinstance(versions, dict) else "of another time"


def _described(calibration: Calibration) -> dict[str, Any]:
    cls, parts = type(calibration), dict(_parts(calibration))
    tensors = [name for name, _ in calibration.named_buffers(recurse=False)]
    undeclared = sorted({*tensors, *parts, *calibration.settings} - set(fields_of(cls)))
    if undeclared:
        raise ValueError(
            f"{cls.__name__} does not declare {', '.join(undeclared)}: write it into the class as a field, for example "
            f"'{undeclared[0]}: Tensor', so that a file can be held against it"
        )
    return {
        "class": key_of(cls),
        "num_classes": calibration.num_classes,
        "fitted_on": {key: value for key, value in calibration.fitted_on.items() if key != "reference"},  # see `save`
        "settings": calibration.settings,
        "tensors": tensors,
        "parts": {name: _described(part) for name, part in parts.items()},
    }


def _parts(calibration: Calibration) -> Iterator[tuple[str, Calibration]]:
    return ((name, part) for name, part in calibration.named_children() if isinstance(part, Calibration))


def _built(header: Any, tensors: dict[str, Tensor], path: Path) -> Calibration:
    """The calibration a header describes, each of its claims checked."""
    for key, kind in KEYS.items():
        value = header.get(key, ...) if isinstance(header, dict) else ...
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{path} has a damaged graphcal header: no valid {key!r}")
    for key, kind in FITTED_ON.items():
        value = header["fitted_on"].get(key, ...)
        if value is not ... and (not isinstance(value, kind) or (key != "undirected" and isinstance(value, bool))):
            raise ValueError(f"{path} has a damaged graphcal header: no valid {key!r} in 'fitted_on'")
    name, num_classes = header["class"], header["num_classes"]
    if num_classes is not None and num_classes < 1:
        raise ValueError(f"{path} is damaged: a calibration of {num_classes} classes")
    classes = calibration_classes(name)
    if name not in classes:
        raise ValueError(
            f"{path} holds a {name!r}, which is not known here; known: {', '.join(sorted(classes))}. A calibrator "
            "from another package must be installed (or imported) first"
        )
    announced = [*header["tensors"], *header["parts"]]
    if not all(isinstance(field, str) for field in announced):
        raise ValueError(f"{path} has a damaged graphcal header: names of tensors and parts are text")
    missing = [tensor for tensor in header["tensors"] if tensor not in tensors]
    if missing:
        raise ValueError(f"{path} is damaged: the header announces tensors that are not there: {', '.join(missing)}")
    extra = [t for t in tensors if t not in announced and t.split(".")[0] not in header["parts"]]
    if extra:
        raise ValueError(f"{path} is damaged: it holds tensors that the header does not announce: {', '.join(extra)}")
    state: dict[str, Any] = {tensor: tensors[tensor] for tensor in header["tensors"]}
    for part, described in header["parts"].items():
        inner = {key.removeprefix(f"{part}."): t for key, t in tensors.items() if key.startswith(f"{part}.")}
        state[part] = _built(described, inner, path)
        if state[part].num_classes not in (None, num_classes):
            raise ValueError(
                f"{path} is damaged: a calibration of {num_classes} classes holds one of {state[part].num_classes}"
            )
    wrong = validate_state(classes[name], {**header["settings"], **state})
    if wrong:
        raise ValueError(f"{path} is damaged: a {name} {wrong}")
    return classes[name](num_classes=num_classes, fitted_on=header["fitted_on"], **{**header["settings"], **state})


# ----------------------------------------------------------------------------------------------------- loaded classes


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
    classes: dict[str, type[Calibration]] = {}
    queue: list[type[Calibration]] = [Calibration]
    while queue:
        for cls in queue.pop().__subclasses__():
            classes[key_of(cls)] = cls
            queue.append(cls)
    return classes


def fields_of(cls: type[Calibration]) -> dict[str, str]:
    """Declared fields of a calibration class, with their types as written."""
    fields: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, Calibration) and base is not Calibration:
            fields |= {name: _written(kind) for name, kind in vars(base).get("__annotations__", {}).items()}
    return {name: kind for name, kind in fields.items() if not kind.startswith(("ClassVar", "typing.ClassVar"))}


def _written(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def validate_state(cls: type[Calibration], state: Mapping[str, Any]) -> str:
    """Fault of a state: fields that are missing, unknown or of another type; else ''."""
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
    return ""


def smoke_test(calibration: Calibration, path: Path) -> None:
    """Apply a restored calibration to three nodes: tensors of a wrong shape are found now, not at the first customer."""
    if calibration.needs.whole_graph or calibration.num_classes is None:
        return
    classes = calibration.num_classes
    check_memory(path, 3 * classes * WORKING, f"three nodes of {classes:,} classes")
    logits = torch.linspace(-1, 1, 3 * classes).reshape(3, classes)
    graph = TracedSums(torch.tensor([[0, 1], [1, 0]]), torch.zeros(3, dtype=torch.bool))
    with file_errors(path, f"a sound {type(calibration).__name__}"), torch.no_grad():
        log_probs = calibration.log_probs(logits, calibration.context(logits, graph))
    if log_probs.shape != logits.shape or not bool(torch.isfinite(log_probs).all()):
        raise ValueError(f"{path} is damaged: its {type(calibration).__name__} gives no log-probabilities")
