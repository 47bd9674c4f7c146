"""The clock jumps, and files carry times of the future: nothing is lost, nothing waits for a time that never comes."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from pathlib import Path

import pytest
from small_preset import small
from small_session import small_session
from test_damaged_folder import tables_of

from graphcal import files
from graphcal.files import atomic_file, sweep, write_atomically
from graphcal.lab.bench.engines import Serial
from graphcal.lab.bench.records import Store
from graphcal.lab.bench.session import Session

DAY = 86_400.0
LEFT = ".table.csv.999999.0123abcd"  # as a process that was killed leaves it


@pytest.mark.parametrize("age", [3650 * DAY, DAY, 10.0, -10.0, -DAY, -3650 * DAY])
def test_what_a_dead_process_left_is_swept_whatever_its_time(tmp_path: Path, age: float) -> None:
    (tmp_path / LEFT).write_text("half")
    os.utime(tmp_path / LEFT, (time.time() - age,) * 2)
    write_atomically(tmp_path / "table.csv", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


@pytest.mark.parametrize("age", [3650 * DAY, -3650 * DAY])
def test_what_a_living_process_writes_is_left_whatever_its_time(tmp_path: Path, age: float) -> None:
    with atomic_file(tmp_path / "table.csv") as file:
        file.write(b"half")
        (partial,) = tmp_path.iterdir()
        os.utime(partial, (time.time() - age,) * 2)
        sweep(tmp_path)
        assert partial.exists()
        file.write(b", whole")
    assert (tmp_path / "table.csv").read_bytes() == b"half, whole"


def test_a_clock_that_jumps_between_the_file_and_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process sees a file of yesterday that nobody has locked yet, and removes it: it is made again."""
    flock, times = files.fcntl.flock, itertools.count()

    def swept_first(file: object, how: int) -> None:
        if next(times) == 0:
            for partial in tmp_path.iterdir():
                partial.unlink()
        flock(file, how)

    monkeypatch.setattr(files.fcntl, "flock", swept_first)
    write_atomically(tmp_path / "table.csv", "whole")
    assert (tmp_path / "table.csv").read_text() == "whole"
    assert next(times) == 2


@pytest.mark.slow
def test_a_clock_that_runs_backwards_changes_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tables_of(small_session())
    jumps = itertools.cycle((-3650 * DAY, 3650 * DAY, -DAY, 0.0))
    now, steps = time.time(), itertools.count()
    monkeypatch.setattr(time, "time", lambda: now - next(steps) + next(jumps))
    session = Session.of(small(), tmp_path / "bench")
    session.run(Serial(), lambda: None)
    assert tables_of(session) == expected
    assert not list((tmp_path / "bench").rglob(".*"))


def test_records_of_the_future_are_kept_and_old_locks_do_not_hold(tmp_path: Path) -> None:
    expected = tables_of(small_session())
    shutil.copytree(small_session().store.folder, tmp_path / "bench")
    store = Store(tmp_path / "bench")
    (tmp_path / "bench" / "locks").mkdir(exist_ok=True)
    keys = sorted(store.finished())
    (tmp_path / "bench" / "records" / f"{keys[0]}.json").unlink()
    for path in (tmp_path / "bench").rglob("*"):
        os.utime(path, (time.time() + 3650 * DAY,) * 2)
    before = {path: path.stat().st_mtime for path in (tmp_path / "bench" / "records").glob("*.json")}
    with store.lock("job-of-a-dead-process") as mine:
        assert mine
    os.utime(tmp_path / "bench" / "locks" / "job-of-a-dead-process", (time.time() + DAY,) * 2)
    again = Session.of(small(), tmp_path / "bench")
    again.run(Serial(), lambda: None)
    assert tables_of(again) == expected
    assert sorted(store.finished()) == keys
    assert all(path.stat().st_mtime == then for path, then in before.items())  # finished work is not done again
