"""Specification of a benchmark cell: everything its result depends on, as plain data with a hash.

    TrainingGroup   models trained together: a graph, a backbone, a training, and one (split, seed) for each model
    Cell            one calibrator on one of those models, and how it is measured

A result is a function of its cell alone. Ten models in one training may differ in the last bit from the same ten in two
trainings of five, so the models that train together are part of the group: a record does not depend on which other cells
were asked for, in what order, or on what was finished when a run was killed.

A cell may name several groups that differ in their training (a decay to be chosen, say). All are trained and calibrated, and
the one with the least validation NLL is kept: validation chooses, test only reports.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

RunId = tuple[int, int]  # (split, seed)
STOPS = ("val", "train", "none")


@dataclass(frozen=True)
class TrainingGroup:
    """Models that are trained together, one for each run."""

    dataset: str
    protocol: str
    labels_per_class: int
    row_normalise: bool | None  # None: as the protocol does
    backbone: str
    architecture: Mapping[str, Any]  # every field of the backbone's settings
    training: Mapping[str, Any]  # every field of `Training`
    runs: tuple[RunId, ...]

    @cached_property
    def key(self) -> str:
        return digest(asdict(self))

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> TrainingGroup:
        return cls(**{**value, "runs": tuple((int(split), int(seed)) for split, seed in value["runs"])})


@dataclass(frozen=True)
class Cell:
    """One calibrator on one trained model, and how it is measured."""

    groups: tuple[TrainingGroup, ...]
    run: RunId
    calibrator: str
    settings: Mapping[str, Any]  # every field of the recipe
    stop: str  # the nodes that early stopping of a calibrator watches: "val", "train", or "none" (its own choice)
    bins: int
    fit_labels: int = 0  # how many random nodes the calibrator is fitted on; 0: the validation nodes of the protocol
    code: str = ""  # SHA-256 of the file that a calibrator "file.py:Class" is in
    serve: str = ""  # the next release of the graph, measured as well (`graphcal.lab.bench.releases`)

    def __post_init__(self) -> None:
        if not self.groups:
            raise ValueError("a cell needs at least one training group: that of the model it calibrates")
        if self.stop not in STOPS:
            raise ValueError(f"stop={self.stop!r} is not one of {', '.join(STOPS)}")
        if not isinstance(self.bins, int) or not 1 <= self.bins <= 10_000:
            raise ValueError(f"bins must be a whole number from 1 to 10,000; got {self.bins!r}")
        for group in self.groups:
            if self.run not in group.runs:
                raise ValueError(f"run (split, seed) = {self.run} is not among the runs trained together: {group.runs}")

    @property
    def group(self) -> TrainingGroup:
        """The graph, protocol and backbone are those of any group; only the training differs between them."""
        return self.groups[0]

    @cached_property
    def key(self) -> str:
        return digest(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """A field that was added later is left out where it says nothing: a cell keeps its key."""
        return {
            key: value for key, value in asdict(self).items() if value or key not in ("fit_labels", "code", "serve")
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Cell:
        groups = tuple(TrainingGroup.from_dict(group) for group in value["groups"])
        return cls(**{**value, "groups": groups, "run": (int(value["run"][0]), int(value["run"][1]))})


@dataclass(frozen=True)
class Job:
    """Cells that stand on the same trained models: the unit of work an engine hands to a worker."""

    cells: tuple[Cell, ...]

    @cached_property
    def key(self) -> str:
        return digest([cell.key for cell in self.cells])


def jobs_of(cells: Sequence[Cell]) -> list[Job]:
    """Cells with the same groups together, in the order in which their first cell came; equal cells once."""
    together: dict[tuple[str, ...], dict[str, Cell]] = {}
    for cell in cells:
        together.setdefault(tuple(group.key for group in cell.groups), {}).setdefault(cell.key, cell)
    return [Job(tuple(unique.values())) for unique in together.values()]


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no blanks, shortest floats, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def digest(value: Any) -> str:
    """The first 20 hexadecimal digits of the SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:20]
