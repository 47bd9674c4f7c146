"""From a preset to the slots of its table, each with its cells, or the part of it that ``--only`` asks for.

    --only dataset=cora,calibrator=ts

`graphcal.lab.bench.resolution` says what is computed for a slot.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphcal.lab.bench.presets import Preset, matches
from graphcal.lab.bench.resolution import make_cells, resolve
from graphcal.lab.bench.spec import Cell


@dataclass(frozen=True)
class Slot:
    """A place in the table, the values of the axes and the method, and one of its cells."""

    row: Mapping[str, Any]
    method: str
    cell: Cell


@dataclass(frozen=True)
class Blank:
    """A place in the table that is meant to be empty, and why."""

    row: Mapping[str, Any]
    method: str
    reason: str


@dataclass(frozen=True)
class Filter:
    """Part of a preset: for each name the values wanted. Names: the axes, method, calibrator, seed, split."""

    wanted: Mapping[str, frozenset[str]]

    @classmethod
    def parse(cls, text: str, preset: Preset) -> Filter:
        """From ``dataset=cora,citeseer,calibrator=ts``: a value without a name belongs to the name before it."""
        known: dict[str, list[str] | None] = {name: [str(v) for v in values] for name, values in preset.axes.items()}
        known["method"] = list(preset.methods)
        known["calibrator"] = sorted({str(method["calibrator"]) for method in preset.methods.values()})
        known |= {"seed": None, "split": None}
        wanted: dict[str, set[str]] = {}
        name = ""
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            before, equals, value = part.rpartition("=")
            name = before.strip() if equals else name
            value = value.strip()
            if name not in known:
                raise ValueError(f"--only takes NAME=VALUE with NAME among {', '.join(known)}; got {part!r}")
            choices = known[name]
            if choices is not None and value not in choices:
                raise ValueError(f"--only {name}={value}: {preset.name} has {name} {', '.join(choices)}")
            wanted.setdefault(name, set()).add(value)
        return cls({name: frozenset(values) for name, values in wanted.items()})

    def allows(self, **values: Any) -> bool:
        return all(str(value) in self.wanted[name] for name, value in values.items() if name in self.wanted)


EVERYTHING = Filter({})


def expand(preset: Preset, runs: int | None = None, only: Filter = EVERYTHING) -> Iterator[Slot]:
    """Every slot of the preset that is wanted, in table order: rows, then methods, then runs."""
    for row, method in _places(preset, only):
        if left_out(preset, row, method) is not None:
            continue
        settings = resolve(preset, row, method)
        if only.allows(calibrator=settings.calibrator):
            for cell in make_cells(settings, row, runs or preset.runs):
                if only.allows(split=cell.run[0], seed=cell.run[1]):
                    yield Slot(row, method, cell)


def blanks(preset: Preset, only: Filter = EVERYTHING) -> Iterator[Blank]:
    """The places that rules leave out and say why."""
    for row, method in _places(preset, only):
        reason = left_out(preset, row, method)
        if reason and only.allows(calibrator=preset.methods[method]["calibrator"]):
            yield Blank(row, method, reason)


def left_out(preset: Preset, row: Mapping[str, Any], method: str) -> str | None:
    """Why a rule leaves a place out (``leave_out = "reason"``; "" for one that is simply not there), or None."""
    matching = (rule for rule in preset.rules if matches(rule["where"], {**row, "method": method}))
    return next((rule["leave_out"] for rule in matching if "leave_out" in rule), None)


def _places(preset: Preset, only: Filter) -> Iterator[tuple[dict[str, Any], str]]:
    """The wanted places of the table: rows, then methods."""
    for values in itertools.product(*preset.axes.values()):
        row = dict(zip(preset.axes, values))
        yield from ((row, method) for method in preset.methods if only.allows(method=method, **row))
