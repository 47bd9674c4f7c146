"""Three engines, the same records; a worker that dies or a user who stops costs the cells in flight and no more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from dying_work import always_dies, dies_once
from small_preset import CELL, small

from graphcal.lab.bench.engines import Processes, Serial, Tick, engine_of
from graphcal.lab.bench.records import Job
from graphcal.lab.bench.session import Session


def ticked(counter: list[int]) -> Tick:
    return lambda: counter.append(1)


def comparable(session: Session) -> dict[str, object]:
    """Everything but the seconds."""
    records = {key: session.store.record(key) for key in session.store.finished()}
    return {key: (one.spec, one.result, one.versions) for key, one in records.items()}


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Session:
    session = Session.of(small(), tmp_path_factory.mktemp("serial"))
    ticks: list[int] = []
    session.run(Serial(), ticked(ticks))
    assert len(ticks) >= len(session.cells)
    assert session.finished() == len(session.cells) == 12
    return session


@pytest.mark.slow
def test_processes_give_the_same_records(serial: Session, tmp_path: Path) -> None:
    session = Session.of(small(), tmp_path)
    session.run(Processes(2), ticked([]))
    assert comparable(session) == comparable(serial)


@pytest.mark.slow
@pytest.mark.ray
def test_ray_gives_the_same_records(serial: Session, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the Ray engine needs the extra graphcal[ray]")
    session = Session.of(small(), tmp_path)
    session.run(engine_of("ray", workers=2), ticked([]))
    assert comparable(session) == comparable(serial)


def two_jobs() -> list[Job]:
    return [Job((CELL, replace(CELL, run=(0, 0)))), Job((CELL,))]


def test_a_job_whose_worker_was_killed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_TEST_FOLDER", str(tmp_path))
    jobs = two_jobs()
    results = list(Processes(1).map(dies_once, jobs, ticked([])))
    assert {(result.job.key, result.lost) for result in results} == {(job.key, "") for job in jobs}


def test_a_job_that_kills_every_worker_is_given_up_and_the_rest_goes_on() -> None:
    jobs = two_jobs()
    results = {result.job.key: result for result in Processes(1, tries=2).map(always_dies, jobs, ticked([]))}
    assert results[jobs[0].key].lost
    assert not results[jobs[1].key].lost


def test_unknown_engines_and_stray_addresses_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown engine 'dask'; choose one of process, serial, ray"):
        engine_of("dask")
    with pytest.raises(ValueError, match="--address is the address of a Ray cluster, but the engine is 'process'"):
        engine_of("process", address="auto")


STOPPED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # as at a terminal: a job in the background inherits that it is ignored
from dataclasses import replace
sys.path.insert(0, sys.argv[1])
from dying_work import slow
from small_preset import GROUP, CELL
from graphcal.lab.bench.engines import Processes
from graphcal.lab.bench.records import Job
if __name__ == "__main__":
    done = 0
    try:
        for result in Processes(2).map(slow, [Job((replace(CELL, bins=bins),)) for bins in range(1, 500)], lambda: None):
            done += 1
    except KeyboardInterrupt:
        print("stopped", done)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_ends_the_workers_and_reaches_the_caller(tmp_path: Path) -> None:
    script, marks = tmp_path / "stopped.py", tmp_path / "marks"
    script.write_text(STOPPED)
    marks.mkdir()
    command = [sys.executable, str(script), str(Path(__file__).parent)]
    env = {**os.environ, "BENCH_TEST_FOLDER": str(marks)}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=env)
    try:
        deadline = time.monotonic() + 60
        while len(list(marks.iterdir())) < 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(child.pid, signal.SIGINT)  # what a terminal does: the whole group gets it
        output, _ = child.communicate(timeout=30)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    word, done = output.split()
    assert word == "stopped"
    assert 3 <= int(done) < 499
    deadline = time.monotonic() + 30
    while _alive(child.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _alive(child.pid)  # nobody is left of the group


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


ENDLESS = STOPPED.replace("import slow", "import endless").replace("map(slow", "map(endless")


def ended(pid: int) -> bool:
    """Whether a process is gone, or dead and not yet buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    marks = tmp_path / "marks"
    marks.mkdir()
    environment = {**os.environ, "BENCH_TEST_FOLDER": str(marks)}
    parent = subprocess.Popen([sys.executable, str(script), str(Path(__file__).parent)], env=environment)
    limit = time.monotonic() + 60
    while len(list(marks.iterdir())) < 2 and time.monotonic() < limit:
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    workers = [int(mark.name) for mark in marks.iterdir()]
    assert len(workers) == 2
    limit = time.monotonic() + 20
    while not all(map(ended, workers)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert all(map(ended, workers))
