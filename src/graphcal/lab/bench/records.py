"""Benchmark cells, and a folder of their results.

A cell is everything that its result depends on, as plain data with a hash.

    TrainingGroup   models trained together: a graph, a backbone, a training, and one (split, seed) for each model
    Cell            one calibrator on one of those models, and how it is measured

A result is a function of its cell alone. Ten models in one training may differ in the last bit from the same ten in two
trainings of five, so the models that train together are part of the group: a record does not depend on which other cells
were asked for, in what order, or on what was finished when a run was killed.

A cell may name several groups that differ in their training (a decay to be chosen, say). All are trained and calibrated, and
the one with the least validation NLL is kept: validation chooses, test only reports.

*A folder of results*: one JSON file per cell, written whole or not at all.

    FOLDER/records/KEY.json         a finished cell; finished = the file exists
    FOLDER/records/KEY.safetensors  its log-probabilities and labels on the test nodes, so that methods can be compared in pairs
    FOLDER/failed/KEY.json          a cell that raised, with its error; tried again by the next run
    FOLDER/cache/KEY.safetensors    trained models, by the hash of their training
    FOLDER/locks/                   empty files that running processes hold locks on; a lock dies with its process

A file is written under another name and moved into place, so a reader sees all of it or nothing, several processes may share
a folder, and a kill at any moment loses at most the cells in flight. What was measured (``result``) and how long it took
(``seconds``) are apart: the first is the same on every run, the second is not.

Nothing in the folder is believed. A record whose cell is not the one it is named after, one that cannot be read or lacks a
part, a nodes file whose SHA-256 is not the one it was written with: `quarantine_damaged` moves them into FOLDER/damaged
and their cells are computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphcal.files import file_errors, read_text, tensor_checksum, write_atomically

if TYPE_CHECKING:
    from torch import Tensor

try:
    import fcntl
except ImportError:  # Windows: no locks, so two processes may do the same cell; the result is the same
    fcntl = None  # type: ignore[assignment]

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


@dataclass(frozen=True)
class Record:
    """One finished cell."""

    spec: Mapping[str, Any]
    result: Mapping[str, Any]  # chosen, test, unlabelled, validation, bins, note
    seconds: Mapping[str, Any]  # of one core: train, search, fit, apply; trained: of each candidate
    versions: Mapping[str, str]

    @property
    def cell(self) -> Cell:
        return Cell.from_dict(self.spec)

    def to_dict(self) -> dict[str, Any]:
        return {"spec": self.spec, "result": self.result, "seconds": self.seconds, "versions": self.versions}


PARTS = ("spec", "result", "seconds", "versions")
MEASURED = ("test", "unlabelled", "validation")
SECONDS = ("train", "search", "fit", "apply")


def checked_record(content: Any, key: str) -> Record:
    """The record in a JSON value, or a ValueError that says what it lacks."""
    if (
        not isinstance(content, dict)
        or content.keys() != set(PARTS)
        or not all(isinstance(v, dict) for v in content.values())
    ):
        raise ValueError(f"expected an object with {', '.join(PARTS)}")
    if digest(content["spec"]) != key:
        raise ValueError(f"it holds the result of another cell ({digest(content['spec'])}): it was renamed or edited")
    result, seconds = content["result"], content["seconds"]
    tables = [result.get(part) for part in MEASURED]
    if not all(isinstance(table, dict) and table and all(map(_is_number, table.values())) for table in tables):
        raise ValueError(f"expected numbers in {', '.join(MEASURED)} of the result")
    if not all(_is_number(seconds.get(part)) for part in SECONDS) or not isinstance(seconds.get("trained"), dict):
        raise ValueError(f"expected the seconds {', '.join(SECONDS)}, trained")
    if not _is_number(result.get("changed")) or not isinstance(result.get("bins"), dict):
        raise ValueError("expected the result's bins and changed")
    return Record(**content)


def _is_number(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_number, value))
    return value is None or (isinstance(value, int | float) and abs(value) < 1e300 and math.isfinite(value))


def with_checksum(tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file that knows the SHA-256 of its tensors."""
    from safetensors.torch import save

    return save(dict(tensors), {**(about or {}), "sha256": tensor_checksum(tensors)})


def read_checked(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file made by `with_checksum`; a damaged file raises an error that names it."""
    from safetensors import safe_open

    with file_errors(path, "a sound file of tensors"):
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            about = file.metadata() or {}
        if about.get("sha256", "") not in ("", tensor_checksum(tensors)):
            raise ValueError("its content is not what was written")
    return tensors, about


class Store:
    """The folder, read and written."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def record_path(self, key: str) -> Path:
        return self.folder / "records" / f"{key}.json"

    def nodes_path(self, key: str) -> Path:
        return self.folder / "records" / f"{key}.safetensors"

    def failure_path(self, key: str) -> Path:
        return self.folder / "failed" / f"{key}.json"

    def cache_path(self, key: str) -> Path:
        return self.folder / "cache" / f"{key}.safetensors"

    def finished(self) -> set[str]:
        """Keys of all finished cells."""
        return _names(self.folder / "records")

    def entries(self) -> set[str]:
        """Keys under which there is anything, a finished cell or something else of its name."""
        return _names(self.folder / "records", files_only=False)

    def failed(self) -> set[str]:
        return _names(self.folder / "failed") - self.finished()

    def has(self, cell: Cell) -> bool:
        return self.record_path(cell.key).exists()

    def put(self, cell: Cell, record: Record, log_probs: Tensor, y: Tensor) -> None:
        """The record last: with it the cell is finished."""
        write_atomically(
            self.nodes_path(cell.key), with_checksum({"log_probs": log_probs.contiguous(), "y": y.contiguous()})
        )
        write_atomically(self.record_path(cell.key), (canonical(record.to_dict()) + "\n").encode())
        with contextlib.suppress(FileNotFoundError):
            self.failure_path(cell.key).unlink()

    def fail(self, cell: Cell, error: BaseException) -> None:
        last = traceback.format_exception(type(error), error, error.__traceback__)
        failure = {"spec": cell.to_dict(), "error": f"{type(error).__name__}: {error}", "traceback": "".join(last)}
        write_atomically(self.failure_path(cell.key), (canonical(failure) + "\n").encode())

    def record(self, key: str) -> Record:
        path = self.record_path(key)
        with file_errors(path, "a sound record; remove it, and the cell is computed again"):
            return checked_record(json.loads(read_text(path), parse_constant=_refuse_constant), key)

    def quarantine_damaged(self, keys: Iterable[str]) -> dict[str, str]:
        """Move damaged files of these finished cells into FOLDER/damaged: key and reason. Their cells count as unfinished."""
        faults = {}
        for key in keys:
            try:
                self.record(key)
                self.nodes(key)
            except (ValueError, FileNotFoundError) as fault:
                faults[key] = str(fault)
                for path in (self.record_path(key), self.nodes_path(key)):
                    self.set_aside(path)
        return faults

    def set_aside(self, path: Path) -> None:
        """Out of the way, into FOLDER/damaged, where it can be looked at."""
        target = self.folder / "damaged" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            while target.exists():
                target = target.with_name(f"{target.name}~")
            path.rename(target)

    def error(self, key: str) -> str:
        """Error of a failed cell; empty if another process has finished it since."""
        path = self.failure_path(key)
        try:
            with file_errors(path, "a sound note of a failure"):
                return str(json.loads(read_text(path))["error"])
        except FileNotFoundError:
            return ""
        except ValueError as fault:
            return str(fault)

    def nodes(self, key: str) -> tuple[Tensor, Tensor]:
        """(log-probabilities, labels) of the test nodes."""
        path = self.nodes_path(key)
        nodes, _ = read_checked(path)
        log_probs, y = nodes.get("log_probs"), nodes.get("y")
        if log_probs is None or y is None or log_probs.dim() != 2 or y.shape != log_probs.shape[:1]:
            raise ValueError(f"{path}: expected log_probs (N, C) and y (N,)")
        return log_probs, y

    @contextlib.contextmanager
    def lock(self, name: str, wait: bool = True) -> Iterator[bool]:
        """True while this process holds the lock; False at once when another does and ``wait`` is off."""
        if fcntl is None:
            yield True
            return
        path = self.folder / "locks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _names(folder: Path, files_only: bool = True) -> set[str]:
    if not folder.is_dir():
        return set()
    names = (entry.name for entry in os.scandir(folder) if entry.is_file() or not files_only)
    return {name[: -len(".json")] for name in names if name.endswith(".json") and not name.startswith(".")}
