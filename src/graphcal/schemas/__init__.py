"""JSON Schemas of the files that graphcal writes, and a small validator for them.

    results.schema.json     results.json of `graphcal calibrate` and `graphcal run`
    decision.schema.json    the decision of `graphcal decide`
    score.schema.json       _score.json of `graphcal score`
    alerts.schema.json      results.json of `graphcal alerts`
    count.schema.json       results.json of `graphcal count`

The validator understands the keywords these files use: type, properties, required, additionalProperties, items, minItems,
maxItems, minimum, maximum, anyOf and $ref. ``title`` describes the value in an error message.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

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
    """The schema of a file: "results", "decision", "score", "alerts" or "count"."""
    text = (files("graphcal.schemas") / f"{name}.schema.json").read_text(encoding="utf-8")
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
