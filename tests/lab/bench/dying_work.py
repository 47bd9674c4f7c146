"""Work whose worker is killed or stopped; a module without torch, so that a new worker is there at once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from graphcal.lab.bench.engines import JobResult, Tick
from graphcal.lab.bench.records import Job


def dies_once(job: Job, tick: Tick) -> JobResult:
    """Kills its own process the first time it sees a job of more than one cell."""
    mark = Path(os.environ["BENCH_TEST_FOLDER"]) / job.key
    if len(job.cells) > 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return JobResult(job)


def always_dies(job: Job, tick: Tick) -> JobResult:
    if len(job.cells) > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return JobResult(job)


def slow(job: Job, tick: Tick) -> JobResult:
    (Path(os.environ["BENCH_TEST_FOLDER"]) / job.key).touch()
    time.sleep(0.3)
    return JobResult(job)


def endless(job: Job, tick: Tick) -> JobResult:
    """Says which process it is, and computes for a minute."""
    (Path(os.environ["BENCH_TEST_FOLDER"]) / str(os.getpid())).touch()
    time.sleep(60)
    return JobResult(job)
