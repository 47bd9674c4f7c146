"""A table read back from the files of a folder: enough of it to draw its figure again, without records.

NAME-runs.csv gives every metric of every run, NAME-bins.csv the bins of reliability diagrams, NAME-seconds.csv the times.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphcal.bench.presets import Preset
from graphcal.bench.records import Record
from graphcal.bench.tabulation import Entry, Row, Table, printed

Place = tuple[str, ...]


def read_table(folder: Path, preset: Preset) -> Table:
    """The table of a preset, as far as its files in the folder go."""
    axes = list(preset.axes)
    lines = _lines(folder / f"{preset.name}-runs.csv")
    bins = _grouped(folder / f"{preset.name}-bins.csv", axes)
    seconds = _grouped(folder / f"{preset.name}-seconds.csv", axes)
    runs: dict[Place, dict[str, list[dict[str, str]]]] = {}
    for line in lines:
        runs.setdefault(tuple(line[axis] for axis in axes), {}).setdefault(line["method"], []).append(line)
    rows = []
    for texts, methods in runs.items():
        place = {axis: _value(text, preset.axes[axis]) for axis, text in zip(axes, texts)}
        entries = {}
        for method in (m for m in preset.methods if m in methods):
            key = (*texts, method)
            more = {"bins": _bins(bins[key])} if key in bins else {}
            spent = seconds.get(key, [{}])[0]
            records = tuple(_record(line, more, spent) for line in methods[method])
            entries[method] = Entry(records, (), len(records), printed(preset, place, method)[0])
        rows.append(Row(place, entries))
    return Table(preset, tuple(rows), None)


def _record(line: Mapping[str, str], more: Mapping[str, Any], spent: Mapping[str, str]) -> Record:
    names = [name for name in line if f"all_{name}" in line]
    test = {name: float(line[name]) for name in names if line[name]}  # blank: measured only in later records
    others = {name: float(line[f"all_{name}"]) for name in names if line[f"all_{name}"]}
    seconds = {part: float(spent[part]) for part in ("train", "search", "fit", "apply") if part in spent}
    run = [int(line["split"]), int(line["seed"])]
    return Record({"run": run}, {"test": test, "unlabelled": others, **more}, seconds, {})


def _bins(lines: list[dict[str, str]]) -> dict[str, list[float]]:
    """As records have them: edges, and count, mean confidence and right ones of each bin."""
    count = [float(line["nodes"]) for line in lines]
    conf = [float(line["confidence_sum"]) / n if n else 0.0 for line, n in zip(lines, count)]
    edges = [float(lines[0]["low"]), *(float(line["high"]) for line in lines)]
    return {"edges": edges, "count": count, "confidence": conf, "right": [float(line["right"]) for line in lines]}


def _lines(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _grouped(path: Path, axes: list[str]) -> dict[Place, list[dict[str, str]]]:
    found: dict[Place, list[dict[str, str]]] = {}
    for line in _lines(path):
        found.setdefault((*(line[axis] for axis in axes), line["method"]), []).append(line)
    return found


def _value(text: str, values: Any) -> Any:
    """The value of the axis that is written so."""
    return next(value for value in values if str(value) == text)
