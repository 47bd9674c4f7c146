"""Read results.json: check it against its JSON Schema, and that the other files of its folder belong to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphcal.files import read_text, reading, sha256_of
from graphcal.schemas import validate

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
    with reading(path, "results"):
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
