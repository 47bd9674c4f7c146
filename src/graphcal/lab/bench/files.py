"""A table read back from the files of a folder, without records: enough to draw its figure again, or to set it beside new rows.

NAME-runs.csv gives every metric of every run, NAME-tests.csv what paired tests tell apart, NAME-bins.csv the bins of reliability
diagrams, NAME-seconds.csv the times.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphcal.lab.bench.comparisons import Difference
from graphcal.lab.bench.expansion import blanks
from graphcal.lab.bench.presets import Preset
from graphcal.lab.bench.records import Record
from graphcal.lab.bench.tabulation import Entry, Row, Table, empty, marked_metrics, printed, with_marks

Place = tuple[str, ...]  # the values of the axes, as they are written
Line = Mapping[str, str]


def read_table(folder: Path, preset: Preset) -> Table:
    """The table of a preset, as far as its files in the folder go; rows that the preset no longer has are left out."""
    axes = list(preset.axes)
    runs, bins, seconds, tests = (
        _by_place(folder / f"{preset.name}-{part}.csv", axes) for part in ("runs", "bins", "seconds", "tests")
    )
    rows = []
    for texts, lines in runs.items():
        place = {axis: _value(text, preset.axes[axis]) for axis, text in zip(axes, texts)}
        if None in place.values():
            continue
        methods, drawn, spent = (_by_method(part.get(texts, [])) for part in ({texts: lines}, bins, seconds))
        entries = {}
        for method in (m for m in preset.methods if m in methods):
            more = {"bins": _bins(drawn[method])} if method in drawn else {}
            records = tuple(_record(line, more, spent.get(method, [{}])[0]) for line in methods[method])
            entries[method] = Entry(records, (), len(records), *printed(preset, place, method))
        entries |= {blank.method: empty(preset, blank) for blank in blanks(preset) if blank.row == place}
        marked = with_marks(preset, entries, _tests(tests.get(texts, []), marked_metrics(preset)))
        rows.append(Row(place, {m: marked[m] for m in preset.methods if m in marked}, same_nodes=texts in tests))
    return Table(preset, tuple(rows), None)


def read_lines(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file, none where it is not there."""
    return parse_lines(path.read_text(encoding="utf-8")) if path.exists() else []


def parse_lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def place_of(line: Mapping[str, Any], axes: Sequence[str]) -> Place:
    return tuple(str(line[axis]) for axis in axes)


def _by_place(path: Path, axes: Sequence[str]) -> dict[Place, list[Line]]:
    found: dict[Place, list[Line]] = {}
    for line in read_lines(path):
        if missing := [axis for axis in axes if axis not in line]:
            raise ValueError(f"{path} has no column {', '.join(missing)}: its rows are not those of this preset")
        found.setdefault(place_of(line, axes), []).append(line)
    return found


def _by_method(lines: Sequence[Line]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line["method"], []).append(line)
    return found


def _record(line: Line, more: Mapping[str, Any], spent: Line) -> Record:
    names = [name for name in line if f"all_{name}" in line]
    test = {name: float(line[name]) for name in names if line[name]}  # blank: measured only in later records
    others = {name: float(line[f"all_{name}"]) for name in names if line[f"all_{name}"]}
    seconds = {part: float(spent[part]) for part in ("train", "search", "fit", "apply") if part in spent}
    run = [int(line["split"]), int(line["seed"])]
    return Record({"run": run}, {"test": test, "unlabelled": others, **more}, seconds, {})


def _tests(lines: Sequence[Line], metrics: Sequence[str]) -> dict[str, tuple[str, dict[str, Difference]]]:
    """For each metric the row's best method, and every other one minus it."""
    found: dict[str, tuple[str, dict[str, Difference]]] = {}
    for line in (line for line in lines if line["metric"] in metrics):
        _, others = found.setdefault(line["metric"], (line["best"], {}))
        others[line["method"]] = Difference(float(line["difference"]), float(line["p"]))
    return found


def _bins(lines: Sequence[Line]) -> dict[str, list[float]]:
    """As records have them: edges, and count, mean confidence and right ones of each bin."""
    count = [float(line["nodes"]) for line in lines]
    conf = [float(line["confidence_sum"]) / n if n else 0.0 for line, n in zip(lines, count)]
    edges = [float(lines[0]["low"]), *(float(line["high"]) for line in lines)]
    return {"edges": edges, "count": count, "confidence": conf, "right": [float(line["right"]) for line in lines]}


def _value(text: str, values: Sequence[Any]) -> Any:
    """The value of the axis that is written so."""
    return next((value for value in values if str(value) == text), None)
