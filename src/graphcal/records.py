"""Read results.json: check it against its JSON Schema, and that the other files of its folder belong to it.

`validate` is a small validator, for the JSON Schemas of the files that graphcal writes:

    results.schema.json     results.json of `graphcal calibrate` and `graphcal run`
    decision.schema.json    the decision of `graphcal decide`
    score.schema.json       _score.json of `graphcal score`
    alerts.schema.json      results.json of `graphcal alerts`
    count.schema.json       results.json of `graphcal count`
    check.schema.json       what `graphcal check --json` prints; likewise watch.schema.json and plan.schema.json

The validator understands the keywords these files use: type, properties, required, additionalProperties, items, minItems,
maxItems, minimum, maximum, anyOf and $ref. ``title`` describes the value in an error message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from graphcal.files import file_errors, read_text, sha256_of

SCHEMA = 3  # of results.json


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
    with file_errors(path, "results"):
        record = checked(record, str(path))
        json.dumps(record, ensure_ascii=False).encode()  # text that is not Unicode is refused here
    check_files(record, path.parent)
    return record


def checked(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the record with NaN and infinity as null; refuse an entry of the wrong type by its path in ``name``."""
    result: dict[str, Any] = finite(record)
    validate(result, "results", name)
    if (result.get("schema") or SCHEMA) != SCHEMA:
        raise ValueError(
            f"{name}: schema {result['schema']}; this graphcal reads {SCHEMA}. Run it again, or update graphcal."
        )
    drawn = result.get("map") or {}
    named = {
        "chosen_method": result.get("chosen_method"),
        "map.before": drawn.get("before"),
        "map.after": drawn.get("after"),
    }
    for entry, method in named.items():
        if method is not None and method not in result["methods"]:
            raise ValueError(f"{name}: {entry} is {method!r}, which is not among its methods")
    return result


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
        validate({"files": files, "methods": {}}, "results", str(path))
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


TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
TITLES = {"object": "an object", "array": "a list", "string": "text", "number": "a number", "integer": "an integer"}


@cache
def schema(name: str) -> dict[str, Any]:
    """The schema of a file or an output, by the name before ``.schema.json``."""
    text = (resources.files("graphcal") / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def validate(value: Any, name: str, source: str) -> None:
    """Raise a ValueError that names ``source`` and the first entry that does not fit the schema ``name``."""
    root = schema(name)
    _validate(value, root, root, source, "")


def _validate(value: Any, spec: dict[str, Any], root: dict[str, Any], source: str, path: str) -> None:
    spec = _resolved(spec, root)
    if "anyOf" in spec:
        if not any(_fits(value, one, root) for one in spec["anyOf"]):
            raise _misfit(value, spec, source, path)
        return
    if not _has_type(value, spec.get("type")) or not _in_range(value, spec):
        raise _misfit(value, spec, source, path)
    if isinstance(value, dict):
        properties, others = spec.get("properties", {}), spec.get("additionalProperties", True)
        for key in spec.get("required", []):
            if key not in value:
                raise _misfit(None, _resolved(properties.get(key, {}), root), source, _join(path, key))
        for key, one in value.items():
            inner = properties.get(key, others)
            if isinstance(inner, dict):
                _validate(one, inner, root, source, _join(path, key))
    elif isinstance(value, list) and isinstance(spec.get("items"), dict):
        for k, one in enumerate(value):
            _validate(one, spec["items"], root, source, f"{path}[{k}]")


def _resolved(spec: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    return dict(root["$defs"][spec["$ref"].rpartition("/")[2]]) if "$ref" in spec else spec


def _fits(value: Any, spec: dict[str, Any], root: dict[str, Any]) -> bool:
    try:
        _validate(value, spec, root, "", "")
    except ValueError:
        return False
    return True


def _has_type(value: Any, kind: str | list[str] | None) -> bool:
    if kind is None:
        return True
    kinds = [kind] if isinstance(kind, str) else kind
    if isinstance(value, bool):  # an int in Python, not in JSON
        return "boolean" in kinds
    return any(isinstance(value, TYPES[one]) for one in kinds)


def _in_range(value: Any, spec: dict[str, Any]) -> bool:
    if isinstance(value, list):
        return bool(spec.get("minItems", 0) <= len(value) <= spec.get("maxItems", len(value)))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return bool(spec.get("minimum", value) <= value <= spec.get("maximum", value))
    return True


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _misfit(value: Any, spec: dict[str, Any], source: str, path: str) -> ValueError:
    kinds = spec.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    wanted = spec.get("title") or " or ".join(TITLES.get(kind, kind) for kind in kinds) or "present"
    if "title" not in spec and "minItems" in spec and spec["minItems"] == spec.get("maxItems"):
        wanted += f" of {spec['minItems']}"
    came = "nothing" if value is None else repr(value)
    came = came if len(came) <= 60 else f"{came[:57]}..."
    return ValueError(f"{source}: {path or 'the record'} must be {wanted}; got {came}")
