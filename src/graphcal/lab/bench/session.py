"""A benchmark session: one preset in one folder. Lists its cells, runs those that are left, and makes the table.

session = Session.of("table-gcn", folder, only="dataset=cora", runs=10)
session.run(engine, tick)
write_files(session.table(), folder)

The time left is estimated from finished cells. Training is looked up by what decides its cost, nearest first: the
same graph, backbone and training; the same graph and backbone; the same backbone; anything. Fitting likewise: graph and
calibrator; calibrator; anything.
"""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from graphcal.files import check_writable, file_errors, read_text, sweep, write_atomically
from graphcal.lab.bench.engines import Engine, Tick
from graphcal.lab.bench.expansion import Blank, Filter, Slot, blanks, expand
from graphcal.lab.bench.presets import Preset, read_preset
from graphcal.lab.bench.records import Cell, Record, Store, TrainingGroup, canonical, jobs_of
from graphcal.lab.bench.tabulation import Table, tabulate
from graphcal.lab.datasets.catalog import NAMES, at_hand, find


@dataclass
class Costs:
    """Seconds seen so far."""

    train: dict[str, list[float]] = field(default_factory=dict)
    fit: dict[str, list[float]] = field(default_factory=dict)
    learned: set[str] = field(default_factory=set)

    def learn(self, keys: Iterable[str], store: Store) -> None:
        """Take in the finished cells that are new."""
        for key in set(keys) - self.learned:
            self.learned.add(key)
            with contextlib.suppress(ValueError, FileNotFoundError):  # damaged: the run that wants it heals it
                self._take(store.record(key))

    def _take(self, record: Record) -> None:
        group = record.spec["groups"][0]
        for name in _training_names(group):
            self.train.setdefault(name, []).append(float(record.seconds["train"]))
        tries = len(record.spec["groups"])
        for name in _fitting_names(group["dataset"], record.spec["calibrator"]):
            self.fit.setdefault(name, []).append(tries * (record.seconds["fit"] + record.seconds["apply"]))

    def of_training(self, group: TrainingGroup) -> float | None:
        """Seconds of one core for all the models of a group."""
        described = {"dataset": group.dataset, "backbone": group.backbone, "training": group.training}
        seconds = _nearest(self.train, _training_names(described))
        return None if seconds is None else seconds * len(group.runs)

    def of_fitting(self, cell: Cell) -> float | None:
        return _nearest(self.fit, _fitting_names(cell.group.dataset, cell.calibrator))

    def left(self, cells: Iterable[Cell], store: Store) -> float | None:
        """Seconds of one core for cells that are not finished; None before anything is known."""
        total, groups = 0.0, {}
        for cell in cells:
            one = self.of_fitting(cell)
            if one is None:
                return None
            total += one
            groups.update({group.key: group for group in cell.groups})
        for key, group in groups.items():
            if not store.cache_path(key).exists():
                total += self.of_training(group) or 0.0
        return total


# Seconds of one core for one run of a GCN for 200 epochs on 100,000 nodes and edges, and for one fit: see `guess`.
GUESSED_TRAINING, GUESSED_FIT = 0.7, 0.5
HEAVY = {"fagcn": 6.0, "gcnii": 6.0, "gat": 3.0}  # times a GCN


def guess(cells: Iterable[Cell], store: Store) -> float:
    """Seconds of one core for cells before any is finished, from the sizes of the graphs; right within a factor of three."""
    cells = list(cells)
    groups = {group.key: group for cell in cells for group in cell.groups if not store.cache_path(group.key).exists()}
    total = GUESSED_FIT * sum(len(cell.groups) for cell in cells)
    for group in groups.values():
        graph = NAMES.get(group.dataset)
        size = max(1.0, (graph.num_nodes + graph.num_edges) / 1e5) if graph else 1.0
        epochs = min(group.training["epochs"], 1000) / 200
        total += GUESSED_TRAINING * size * epochs * HEAVY.get(group.backbone, 1.0) * len(group.runs)
    return total


def _training_names(group: Mapping[str, Any]) -> list[str]:
    graph, backbone = group["dataset"], group["backbone"]
    return [canonical([graph, backbone, group["training"]]), f"{graph} {backbone}", backbone, ""]


def _fitting_names(dataset: str, calibrator: str) -> list[str]:
    return [f"{dataset} {calibrator}", calibrator, ""]


def _nearest(seen: dict[str, list[float]], names: list[str]) -> float | None:
    return next((statistics.fmean(seen[name]) for name in names if name in seen), None)


def clock(seconds: float | None) -> str:
    """3 s, 12 min, 2 h 05 min; 'unknown' for None."""
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


@dataclass
class Session:
    preset: Preset
    slots: Sequence[Slot]
    blanks: Sequence[Blank]
    store: Store
    costs: Costs = field(default_factory=Costs)

    @classmethod
    def of(cls, name: str | Preset, folder: str | Path, only: str = "", runs: int | None = None) -> Session:
        """A named preset, or one made in code. ``only`` and ``runs`` take a part of it."""
        preset = read_preset(name) if isinstance(name, str) else name
        with file_errors(name if isinstance(name, str) else f"preset {preset.name}", "a sound preset"):
            everything = Filter.parse("", preset)  # what is wrong with the preset is said of the preset
            part = Filter.parse(only, preset) if only else everything
            slots = list(expand(preset, runs, part))
            empty = list(blanks(preset, part))
            for slot in slots:
                slot.cell.key  # noqa: B018 (a setting that is no plain number has no digest)
        if not slots:
            whole = f"{name}: the preset has no cell" if isinstance(name, str) else f"preset {preset.name} has no cell"
            raise ValueError(f"--only {only}: no cell of {preset.name} has all of these" if only else whole)
        return cls(preset, slots, empty, Store(folder))

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """Each cell once: the same one may stand in two slots."""
        return {slot.cell.key: slot.cell for slot in self.slots}

    @cached_property
    def unavailable(self) -> dict[str, str]:
        """Datasets that cannot be loaded here, and why."""
        faults = {}
        for name in dict.fromkeys(cell.group.dataset for cell in self.unfinished()):
            try:
                if at_hand(name) is None:
                    find(name)
            except FileNotFoundError as fault:
                faults[name] = str(fault)
        return faults

    def unfinished(self) -> list[Cell]:
        done = self.store.finished()
        return [cell for key, cell in self.cells.items() if key not in done]

    def todo(self) -> list[Cell]:
        """Cells that a run would compute: unfinished, and on a graph that can be loaded."""
        return [cell for cell in self.unfinished() if cell.group.dataset not in self.unavailable]

    def finished(self) -> int:
        return len(self.store.finished() & self.cells.keys())

    def failed(self) -> dict[str, str]:
        """Key and error of the cells that failed."""
        return {key: self.store.error(key) for key in self.store.failed() & self.cells.keys()}

    def seconds_left(self) -> float | None:
        """Seconds of one core that remain."""
        self.costs.learn(self.store.finished(), self.store)
        return self.costs.left(self.todo(), self.store)

    def quarantine_damaged(self) -> dict[str, str]:
        """Remove half-written files and set damaged records aside.

        Returns key and reason of the cells that will be computed again.
        """
        folder = self.store.folder
        check_writable(folder)
        for part in ("records", "failed", "cache", "plans"):
            sweep(folder / part)
        return self.store.quarantine_damaged(sorted(self.store.entries() & self.cells.keys()))

    def run(self, engine: Engine, tick: Tick) -> None:
        from graphcal.lab.bench._runner import run_jobs

        self.quarantine_damaged()
        run_jobs(jobs_of(self.todo()), self.store, engine, tick)

    def remember(self) -> None:
        """Leave in the folder what was asked for, so that `status` can say how far it is and `archive` what belongs together."""
        places: dict[str, dict[str, Any]] = {}
        for slot in self.slots:
            entry = places.setdefault(canonical(slot.row), {"place": slot.row, "methods": {}})
            entry["methods"].setdefault(slot.method, []).append(slot.cell.key)
        plan = {"preset": self.preset.name, "cells": list(self.cells), "rows": list(places.values())}
        write_atomically(self.store.folder / "plans" / f"{self.preset.name}.json", json.dumps(plan))

    def table(self) -> Table:
        return tabulate(self.preset, self.slots, self.blanks, self.store)


@dataclass(frozen=True)
class Status:
    preset: str
    cells: int
    finished: int
    failed: dict[str, str]  # key -> error


def status(folder: str | Path) -> list[Status]:
    """Progress of each preset of a folder."""
    store, plans = Store(folder), sorted((Path(folder) / "plans").glob("*.json"))
    if not plans:
        raise ValueError(f"{folder} holds no benchmark: `graphcal bench PRESET --out {folder}` starts one")
    done, failed, states = store.finished(), store.failed(), []
    for path in plans:
        with file_errors(path, "a sound plan; the same `graphcal bench` command writes it anew"):
            plan = json.loads(read_text(path))
            name, keys = str(plan["preset"]), set(map(str, plan["cells"]))
        errors = {key: store.error(key) for key in sorted(failed & keys)}
        states.append(Status(name, len(keys), len(done & keys), errors))
    return states
