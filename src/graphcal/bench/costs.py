"""How long what is left will take, from what is done.

Training is looked up by what decides its cost, from the nearest to the farthest that has been seen: the same graph, backbone and
training; the same graph and backbone; the same backbone; anything. Fitting likewise: graph and calibrator; calibrator; anything.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from graphcal.bench.records import Record, Store
from graphcal.bench.spec import Base, Cell, canonical


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
            self._take(store.record(key))

    def _take(self, record: Record) -> None:
        base = record.spec["bases"][0]
        for name in _training_names(base):
            self.train.setdefault(name, []).append(float(record.seconds["train"]))
        tries = len(record.spec["bases"])
        for name in _fitting_names(base["dataset"], record.spec["calibrator"]):
            self.fit.setdefault(name, []).append(tries * (record.seconds["fit"] + record.seconds["apply"]))

    def of_training(self, base: Base) -> float | None:
        """Seconds of one core for all the models of a base."""
        described = {"dataset": base.dataset, "backbone": base.backbone, "training": base.training}
        found = _nearest(self.train, _training_names(described))
        return None if found is None else found * len(base.runs)

    def of_fitting(self, cell: Cell) -> float | None:
        return _nearest(self.fit, _fitting_names(cell.base.dataset, cell.calibrator))

    def left(self, cells: Iterable[Cell], store: Store) -> float | None:
        """Seconds of one core for cells that are not finished; None before anything is known."""
        total, bases = 0.0, {}
        for cell in cells:
            one = self.of_fitting(cell)
            if one is None:
                return None
            total += one
            bases.update({base.key: base for base in cell.bases})
        for key, base in bases.items():
            if not store.cache_path(key).exists():
                total += self.of_training(base) or 0.0
        return total


def _training_names(base: dict[str, Any]) -> list[str]:
    graph, backbone = base["dataset"], base["backbone"]
    return [canonical([graph, backbone, base["training"]]), f"{graph} {backbone}", backbone, ""]


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
