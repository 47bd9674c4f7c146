"""How long what is left will take, from what is done.

Training is looked up by what decides its cost, from the nearest to the farthest that has been seen: the same graph, backbone and
training; the same graph and backbone; the same backbone; anything. Fitting likewise: graph and calibrator; calibrator; anything.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphcal.lab.bench.records import Record, Store
from graphcal.lab.bench.spec import Cell, TrainingGroup, canonical


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
