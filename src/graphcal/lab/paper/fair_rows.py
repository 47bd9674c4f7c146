"""Which rows of the paper's tables have the fair columns: finished with every run, or not run, and by what command they are.

A row counts when every column of its preset is there with all runs. `graphcal.lab.paper.answer` writes the grid into the pages
that have a place for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from graphcal.lab.bench.document import Grid, cells
from graphcal.lab.bench.expansion import left_out
from graphcal.lab.bench.presets import Preset, read_preset
from graphcal.lab.paper.run_files import RunFiles

# the paper's table, the preset with its fair columns, and graphs that cannot be had
TABLES = (
    ("table-gcn", "fair", ("corafull",)),
    ("table-gat", "fair-gat", ("corafull",)),
    ("table-hetero", "fair-hetero", ("arxiv-year",)),
    ("table-backbones", "fair-backbones", ()),
)
NOT_THE_PAPERS = {
    "backbone": ("gat-cagcn",),
    "dataset": ("chameleon-filtered", "squirrel-filtered"),
}  # SCAR is not there


def places(preset: Preset, without: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    """The rows of a table that the paper has too and that can be had."""
    for values in product(*preset.axes.values()):
        place = dict(zip(preset.axes, values))
        ours = any(place.get(axis) in names for axis, names in NOT_THE_PAPERS.items())
        if place["dataset"] not in without and not ours:
            yield place


def is_complete(runs: RunFiles, preset: Preset, place: Mapping[str, Any]) -> bool:
    """Every column of the preset has all its runs in this row."""
    row = tuple((axis, str(place[axis])) for axis in preset.axes)
    there = {method: len(runs.at(preset.name, row, method, "ece")) for method in runs.methods(preset.name, row)}
    wanted = [method for method in preset.methods if left_out(preset, place, method) is None]
    return all(there.get(method) == preset.runs for method in wanted)


def name_of(place: Mapping[str, Any]) -> str:
    """Graph, labels and network, in this order, however the table has them."""
    return " ".join(str(place[axis]) for axis in ("dataset", "labels_per_class", "backbone") if axis in place)


def grid_of_fair_rows(runs: RunFiles) -> Grid:
    body = []
    for table, fair, without in TABLES:
        preset = read_preset(fair)
        names = {name_of(place): place for place in places(read_preset(table), without)}
        done = [name for name, place in names.items() if _has(preset, place) and is_complete(runs, preset, place)]
        left = [name for name in names if name not in done]
        listed = [", ".join(some) or "none" for some in (done, left)]
        count = f"{len(done)} of {len(names)}"
        body.append(cells([table, count, *listed, f"`graphcal bench {fair}`", _core_time(runs.folder / f"{fair}.md")]))
    return Grid(["table", "rows", "fair columns, ten seeds", "not run", "command", "time of one core"], body, range(5))


def _core_time(page: Path) -> str:
    """What the finished rows took, as their own page says; a table that was published in parts says it of each."""
    found = re.findall(r"\bComputing time: (.+?) of one core", page.read_text(encoding="utf-8"))
    if not found:
        raise ValueError(f"{page} does not say its computing time")
    return " + ".join(found)


def _has(preset: Preset, place: Mapping[str, Any]) -> bool:
    return all(place.get(axis) in values for axis, values in preset.axes.items())
