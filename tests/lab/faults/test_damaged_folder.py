"""A benchmark folder that was damaged in every way we know: the same command heals it, and the tables are the same bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_preset import CELL, small
from small_session import small_session

from graphcal.lab.bench._runner import _is_sound
from graphcal.lab.bench.engines import Serial
from graphcal.lab.bench.files import csv_of_methods, csv_of_runs, latex
from graphcal.lab.bench.records import Store, canonical
from graphcal.lab.bench.session import Session, status


def tables_of(session: Session) -> str:
    table = session.table()
    return csv_of_methods(table) + csv_of_runs(table) + latex(table)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(bytes(content))


def edit(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


RECORD: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(500)),
    "null": lambda path: path.write_text("null"),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "lacks a key": lambda path: edit(path, lambda record: record.pop("seconds")),
    "has one more": lambda path: edit(path, lambda record: record.update(more=1)),
    "NaN": lambda path: path.write_text(path.read_text().replace('"ece":', '"ece":NaN,"old":')),
    "a metric is text": lambda path: edit(path, lambda record: record["result"]["test"].update(ece="low")),  # type: ignore[index]
    "another cell's": lambda path: edit(path, lambda record: record["spec"].update(bins=7)),  # type: ignore[attr-defined]
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}
NODES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "one bit": flip,
}


@pytest.fixture
def damaged(tmp_path: Path) -> Session:
    """A finished folder of one's own to damage."""
    shutil.copytree(small_session().store.folder, tmp_path / "bench")
    return Session.of(small(), tmp_path / "bench")


def key_of(session: Session) -> str:
    return next(key for key, cell in session.cells.items() if cell.calibrator == "none")


@pytest.mark.parametrize(
    ("kind", "case"), [*(("record", case) for case in RECORD), *(("nodes", case) for case in NODES)]
)
def test_a_damaged_cell_is_named_and_set_aside(kind: str, case: str, damaged: Session) -> None:
    key = key_of(damaged)
    path = damaged.store.record_path(key) if kind == "record" else damaged.store.nodes_path(key)
    (RECORD if kind == "record" else NODES)[case](path)
    healed = damaged.quarantine_damaged()
    assert list(healed) == [key]
    assert str(path) in healed[key]
    assert [cell.key for cell in damaged.unfinished()] == [key], "only this cell is computed again"
    assert damaged.quarantine_damaged() == {}
    assert list((damaged.store.folder / "damaged").iterdir()), "it is there to be looked at"


def test_the_same_command_gives_the_same_tables(damaged: Session) -> None:
    """Several kinds at once, computed again from the cached models."""
    keys = [key for key, cell in damaged.cells.items() if cell.calibrator in ("none", "ts")][:4]
    for key, case in zip(keys, ("truncated", "NaN", "another cell's", "a folder")):
        RECORD[case](damaged.store.record_path(key))
    NODES["one bit"](damaged.store.nodes_path(keys[0]))
    damaged.run(Serial(), lambda: None)
    assert not damaged.failed()
    assert tables_of(damaged) == tables_of(small_session())


def test_a_damaged_model_is_trained_again(damaged: Session) -> None:
    key = key_of(damaged)
    group = damaged.cells[key].group
    path = damaged.store.cache_path(group.key)
    assert _is_sound(group, path)
    other = next(p for p in path.parent.iterdir() if p != path)
    original = path.read_bytes()
    for damage in (original[:1000], b"", original[:-3] + b"abc", other.read_bytes()):
        path.write_bytes(damage)
        assert not _is_sound(group, path), "cut, empty, a few other bytes, the models of another training"
    damaged.store.record_path(key).unlink()
    damaged.run(Serial(), lambda: None)
    assert not damaged.failed()
    assert _is_sound(group, path)
    assert tables_of(damaged) == tables_of(small_session())


def test_status_and_failures_name_what_is_damaged(damaged: Session) -> None:
    folder = damaged.store.folder
    damaged.remember()
    assert status(folder)[0].finished == len(damaged.cells)
    damaged.store.failure_path("x").parent.mkdir(exist_ok=True)
    damaged.store.failure_path("x").write_bytes(b"\x00")
    assert "failed/x.json: not a sound note" in damaged.store.error("x")
    plan = next((folder / "plans").iterdir())
    plan.write_text('{"preset": ')
    with pytest.raises(ValueError, match=rf"{plan.name}: not a sound plan"):
        status(folder)


def test_a_folder_that_takes_no_files_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    session = Session.of(small(), tmp_path / "file")
    with pytest.raises(ValueError, match="cannot write to .*file"):
        session.run(Serial(), lambda: None)


def test_failed_is_what_is_not_finished(tmp_path: Path) -> None:
    """A process that was stopped between its two file operations leaves both: the cell is finished."""
    store, other = Store(tmp_path), replace(CELL, bins=15)
    for cell in (CELL, other):
        store.fail(cell, ValueError("no good"))
    store.record_path(CELL.key).parent.mkdir()
    store.record_path(CELL.key).write_text("{}")
    assert store.failed() == {other.key}


def test_the_tables_of_tensors_know_their_own_digest(tmp_path: Path) -> None:
    from graphcal.lab.bench.records import read_checked, with_checksum

    path = tmp_path / "t.safetensors"
    path.write_bytes(with_checksum({"a": torch.arange(3.0)}, {"base": canonical([1])}))
    tensors, about = read_checked(path)
    assert tensors["a"].tolist() == [0, 1, 2]
    assert about["base"] == "[1]"
    flip(path)
    with pytest.raises(ValueError, match=r"t\.safetensors: .*not what was written"):
        read_checked(path)
