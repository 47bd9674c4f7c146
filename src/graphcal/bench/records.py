"""A folder of results: one JSON file per cell, written whole or not at all.

    FOLDER/records/KEY.json         a finished cell; finished = the file exists
    FOLDER/records/KEY.safetensors  its log-probabilities and labels on the test nodes, so that methods can be compared in pairs
    FOLDER/failed/KEY.json          a cell that raised, with its error; tried again by the next run
    FOLDER/cache/KEY.safetensors    trained models, by the hash of their training
    FOLDER/locks/                   empty files that running processes hold locks on; a lock dies with its process

A file is written under another name and moved into place, so a reader sees all of it or nothing, several processes may share
a folder, and a kill at any moment loses at most the cells in flight. What was measured (``result``) and how long it took
(``seconds``) are apart: the first is the same on every run, the second is not. A record whose cell is not the one it is named
after is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphcal.bench.spec import Cell, canonical, digest
from graphcal.files import write_atomically

if TYPE_CHECKING:
    from torch import Tensor

try:
    import fcntl
except ImportError:  # Windows: no locks, so two processes may do the same cell; the result is the same
    fcntl = None  # type: ignore[assignment]


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

    def failed(self) -> set[str]:
        return _names(self.folder / "failed") - self.finished()

    def has(self, cell: Cell) -> bool:
        return self.record_path(cell.key).exists()

    def put(self, cell: Cell, record: Record, log_probs: Tensor, y: Tensor) -> None:
        """The record last: with it the cell is finished."""
        from safetensors.torch import save

        write_atomically(self.nodes_path(cell.key), save({"log_probs": log_probs.contiguous(), "y": y.contiguous()}))
        write_atomically(self.record_path(cell.key), (canonical(record.to_dict()) + "\n").encode())
        with contextlib.suppress(FileNotFoundError):
            self.failure_path(cell.key).unlink()

    def fail(self, cell: Cell, error: BaseException) -> None:
        last = traceback.format_exception(type(error), error, error.__traceback__)
        failure = {"spec": cell.to_dict(), "error": f"{type(error).__name__}: {error}", "traceback": "".join(last)}
        write_atomically(self.failure_path(cell.key), (canonical(failure) + "\n").encode())

    def record(self, key: str) -> Record:
        path = self.record_path(key)
        record = Record(**json.loads(path.read_text(encoding="utf-8")))
        if digest(record.spec) != key:
            raise ValueError(
                f"{path} holds the result of another cell ({digest(record.spec)}): it was renamed or edited; "
                "remove it, and the cell is computed again"
            )
        return record

    def error(self, key: str) -> str:
        """Why a cell failed; empty when another process has finished it since."""
        try:
            return str(json.loads(self.failure_path(key).read_text(encoding="utf-8"))["error"])
        except FileNotFoundError:
            return ""

    def nodes(self, key: str) -> tuple[Tensor, Tensor]:
        """(log-probabilities, labels) of the test nodes."""
        from safetensors.torch import load_file

        nodes = load_file(self.nodes_path(key))
        return nodes["log_probs"], nodes["y"]

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


def _names(folder: Path) -> set[str]:
    if not folder.is_dir():
        return set()
    names = (entry.name for entry in os.scandir(folder))
    return {name[: -len(".json")] for name in names if name.endswith(".json") and not name.startswith(".")}
