"""Read results.json: check its structure, and that the other files of its folder belong to it.

`SCHEMA` lists the entries that the page and the model card read, with their types. Other entries are kept and not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from graphcal.files import read_text, reading, sha256_of
from graphcal.metrics.sample_size import LabelLimit

SCHEMA_VERSION = 2  # of results.json; 1 had no number and no chosen_method
TABLE = "predictions"  # backbone of predictions that were not made here

NUMBER, TEXT, LIST, OBJECT = "a number", "text", "a list", "an object"
COUNT, METRIC, ANY = "a count above 0", "a number, or an object with a mean", "anything"
METRICS_READ = (
    "accuracy", "confidence", "signed_gap", "ece", "ece_floor", "true_error", "nll", "brier", "coverage_at_5", "worst_slice",
    "fit_seconds",
)  # fmt: skip

# A key that ends in ? may be missing or null. A list has entries of one kind, a tuple that many; "*" is every key of an object.
_CURVE = {"targets": [NUMBER], "decided": [NUMBER], "total": COUNT}
_DECISION = {
    "curve": _CURVE, "labels": NUMBER, "nodes": COUNT, "approved": NUMBER, "errors": NUMBER, "max_error": NUMBER,
    "next_target?": (NUMBER, NUMBER), "warnings?": [TEXT],
}  # fmt: skip
_WORST = {"by": TEXT, "group": ANY, "nodes": NUMBER, "confidence": NUMBER, "accuracy": NUMBER, "signed_gap": NUMBER}
_LIMIT = dict.fromkeys((field.name for field in fields(LabelLimit)), NUMBER)
_NODE = {"hops": NUMBER, "degree": NUMBER, "agreement": NUMBER}
_PAIR = {"difference": NUMBER, "low": NUMBER, "high": NUMBER, "p": NUMBER}
_METHOD = {
    **{f"{key}?": METRIC for key in METRICS_READ},
    "title?": TEXT, "note?": TEXT, "p?": NUMBER, "ece_interval?": (NUMBER, NUMBER), "worst?": _WORST, "limit?": _LIMIT,
    "against?": {"ece": _PAIR}, "binnings?": OBJECT, "changed?": [_NODE], "decision?": _DECISION,
}  # fmt: skip
SCHEMA: dict[str, Any] = {
    "schema_version?": NUMBER, "graphcal?": TEXT, "dataset?": TEXT, "backbone?": TEXT, "protocol?": TEXT, "command?": TEXT,
    "verdict?": TEXT, "chosen_method?": TEXT, "nodes?": {"*": NUMBER}, "seeds?": LIST, "bins?": NUMBER, "training?": OBJECT,
    "versions?": OBJECT, "combined?": NUMBER, "files?": {"*": TEXT}, "methods": {"*": _METHOD},
    "map?": {"before": TEXT, "after": TEXT, "nodes": NUMBER, "of": NUMBER},
}  # fmt: skip


def results_file(path: str | Path) -> Path:
    """Return the path of results.json in a folder, and any other path as it is."""
    path = Path(path)
    return path / "results.json" if path.is_dir() else path


def read_results(path: str | Path) -> dict[str, Any]:
    """Read the results record in a file, or in the results.json of a folder, and check it and the files beside it."""
    path = results_file(path)
    if not path.exists():
        raise ValueError(f"no results at {path}; `graphcal run --out DIR` writes DIR/results.json")
    record = _json(path)
    if not isinstance(record, dict) or not isinstance(record.get("methods"), dict) or not record["methods"]:
        raise ValueError(f"{path} holds no results: expected an object with 'methods', as `graphcal run` writes it")
    with reading(path, "results"):
        record = checked(record, str(path))
        json.dumps(record, ensure_ascii=False).encode()  # text that is not Unicode is refused here
    check_files(record, path.parent)
    return record


def checked(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the record with NaN and infinity as null; refuse an entry of the wrong type by its place in ``name``."""
    found: dict[str, Any] = finite(record)
    _check(found, SCHEMA, name, "")
    version = found.get("schema_version") or 1
    if version > SCHEMA_VERSION:
        raise ValueError(
            f"{name}: schema version {version}; this graphcal reads up to {SCHEMA_VERSION}. Update graphcal."
        )
    if found.get("chosen_method") is None:  # schema 1: the method that validation recommended
        recommended = found.get("recommended")
        old = recommended.get("method") if isinstance(recommended, dict) else None
        found["chosen_method"] = old if old in list(found["methods"]) else None
    for place, method in (("chosen_method", found["chosen_method"]), *_map_methods(found)):
        if method is not None and method not in found["methods"]:
            raise ValueError(f"{name}: {place} is {method!r}, which is not among its methods")
    return found


def check_files(record: Mapping[str, Any], folder: Path) -> None:
    """Refuse a folder in which a file is not the one that the results were saved with."""
    for name, digest in (record.get("files") or {}).items():
        path = folder / name
        if Path(name).name == name and path.is_file() and sha256_of(path) != digest:
            raise ValueError(
                f"{path} does not belong to {folder / 'results.json'}: its SHA-256 differs. A run that writes this folder was "
                "interrupted, or the file was changed; run it again, or name the file itself to use it as it is."
            )


def check_folder(folder: Path) -> None:
    """Check the files of a folder against its results.json, where it has one."""
    path = folder / "results.json"
    if not path.is_file():
        return
    record = _json(path)
    files = record.get("files") if isinstance(record, dict) else None
    if files is not None:
        _check(files, {"*": TEXT}, str(path), "files")
        check_files({"files": files}, folder)


def finite(value: Any) -> Any:
    """Return the same structure with NaN and infinity as null, which JSON has."""
    if isinstance(value, Mapping):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _json(path: Path) -> Any:
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def _map_methods(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(f"map.{end}", record["map"][end]) for end in ("before", "after")] if record.get("map") else []


def _check(value: Any, spec: Any, name: str, place: str) -> None:
    if isinstance(spec, dict):
        if not isinstance(value, dict):
            raise _misfit(value, OBJECT, name, place)
        for key, entry in spec.items():
            optional, plain = key.endswith("?"), key.removesuffix("?")
            for one in value if key == "*" else [plain]:
                inner = f"{place}.{one}" if place else str(one)
                if value.get(one) is not None:
                    _check(value[one], entry, name, inner)
                elif not optional:
                    raise _misfit(None, entry, name, inner)
    elif isinstance(spec, list | tuple):
        if not isinstance(value, list) or (isinstance(spec, tuple) and len(value) != len(spec)):
            raise _misfit(value, spec, name, place)
        for k, one in enumerate(value):
            _check(one, spec[0], name, f"{place}[{k}]")
    elif not _is(value, spec):
        raise _misfit(value, spec, name, place)


def _is(value: Any, kind: str) -> bool:
    number = isinstance(value, int | float) and abs(value) <= 1e15
    if kind == METRIC and isinstance(value, dict):
        parts = [value.get("mean"), value.get("sd")]
        return all(part is None or _is(part, NUMBER) for part in parts) and isinstance(value.get("values", []), list)
    types = {TEXT: str, LIST: list, OBJECT: dict, ANY: object}
    return isinstance(value, types[kind]) if kind in types else number and (kind != COUNT or value >= 1)


def _misfit(value: Any, spec: Any, name: str, place: str) -> ValueError:
    wanted = spec if isinstance(spec, str) else LIST if isinstance(spec, list | tuple) else OBJECT
    wanted += f" of {len(spec)}" if isinstance(spec, tuple) else ""
    came = "nothing" if value is None else repr(value)
    came = came if len(came) <= 60 else f"{came[:57]}..."
    return ValueError(f"{name}: {place or 'the record'} must be {wanted}; got {came}")
