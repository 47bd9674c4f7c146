"""Run jobs in this process, in a pool of processes, or on a Ray cluster. One small interface, the same records from each.

    Engine.map(work, jobs, tick) -> results, in the order in which jobs end

``work(job, tick)`` computes the unfinished cells of a job and writes them; ``tick()`` is called about once a second. Every
worker computes with one thread: two workers on two cores do not fight, and sums are added in the same order everywhere.
Stopping is killing: records are written whole, so an engine that is interrupted ends its workers and nothing is lost but the
cells they were at.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from graphcal.files import write_atomically
from graphcal.lab.bench.records import Job

Tick = Callable[[], None]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
TICK_SECONDS = 1.0


@dataclass(frozen=True)
class JobResult:
    """Result of one job."""

    job: Job
    written: tuple[str, ...] = ()  # the files written, with their folder
    busy: bool = False  # another process has it
    lost: str = ""  # the worker died: why


Work = Callable[[Job, Tick], JobResult]


class Engine(Protocol):
    def map(self, work: Work, jobs: Sequence[Job], tick: Tick) -> Iterator[JobResult]: ...


def noop() -> None:
    """The tick of a worker that nobody watches."""


@dataclass(frozen=True)
class Serial:
    """One job after the other, in this process."""

    def map(self, work: Work, jobs: Sequence[Job], tick: Tick) -> Iterator[JobResult]:
        for job in jobs:
            yield work(job, tick)
            tick()


def _become_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair: it ends the pool
    os.environ.update(ONE_THREAD)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    """A parent that is killed cannot end its workers: they would compute on, and the same command given again beside them."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@dataclass(frozen=True)
class Processes:
    """A pool of processes. A worker that dies (out of memory, say) costs its job, not the run."""

    workers: int = 0  # 0: one per core
    tries: int = 3  # how often a job may be there when the pool breaks; several run at once, and only one is to blame

    def map(self, work: Work, jobs: Sequence[Job], tick: Tick) -> Iterator[JobResult]:
        waiting, seen = list(jobs), dict.fromkeys((job.key for job in jobs), 0)
        while waiting:
            running: dict[Future[JobResult], Job] = {}
            try:
                yield from self._pool(work, waiting, running, tick)
            except BrokenProcessPool as death:
                for job in running.values():
                    seen[job.key] += 1
                    if seen[job.key] >= self.tries:
                        yield JobResult(job, lost=str(death))
                    else:
                        waiting.append(job)

    def _pool(
        self, work: Work, waiting: list[Job], running: dict[Future[JobResult], Job], tick: Tick
    ) -> Iterator[JobResult]:
        """Results until ``waiting`` is empty; ``running`` is what was under way when the pool broke."""
        count = self.workers or os.cpu_count() or 1
        pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _become_worker)
        before = set(multiprocessing.active_children())
        try:
            while waiting or running:
                while waiting and len(running) < count:
                    job = waiting.pop(0)
                    running[pool.submit(work, job, noop)] = job
                done, _ = wait(running, TICK_SECONDS, FIRST_COMPLETED)
                for future in done:
                    result = future.result()
                    del running[future]
                    yield result
                tick()
        finally:
            if running:  # interrupted, or the pool broke
                for child in set(multiprocessing.active_children()) - before:
                    child.terminate()
            pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class RayTasks:
    """Tasks on a Ray cluster; without an address, a local one that lives as long as the run.

    Machines need no common folder: a task sends back the files it wrote, and the driver keeps those it does not have.
    """

    address: str | None = None
    workers: int = 0  # of a local cluster; 0: one per core

    def map(self, work: Work, jobs: Sequence[Job], tick: Tick) -> Iterator[JobResult]:
        ray = _ray()
        started = not ray.is_initialized()
        if started:
            passed = {name: os.environ[name] for name in ("GRAPHCAL_DATA",) if name in os.environ}
            local = {} if self.address else {"num_cpus": self.workers or os.cpu_count()}
            ray.init(
                address=self.address, include_dashboard=False, log_to_driver=False, configure_logging=False,
                runtime_env={"env_vars": {**ONE_THREAD, **passed}}, **local,
            )  # fmt: skip
        task = ray.remote(num_cpus=1, max_retries=2)(_remote)
        waiting = list(jobs)
        running: dict[Any, Job] = {}
        try:
            while waiting or running:
                limit = max(1, int(ray.cluster_resources().get("CPU", 1)))
                while waiting and len(running) < limit:
                    job = waiting.pop(0)
                    running[task.remote(work, job)] = job
                done, _ = ray.wait(list(running), timeout=TICK_SECONDS)
                for reference in done:
                    job = running.pop(reference)
                    yield _received(ray, reference, job)
                tick()
        finally:
            for reference in running:
                with contextlib.suppress(Exception):
                    ray.cancel(reference, force=True)
            if started:
                ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError(
            "engine 'ray' needs Ray: pip install 'graphcal[ray]'; or choose --engine process or serial"
        ) from None
    return ray


def _remote(work: Work, job: Job) -> tuple[JobResult, dict[str, bytes]]:
    result = work(job, noop)
    return result, {name: Path(name).read_bytes() for name in result.written}


def _received(ray: Any, reference: Any, job: Job) -> JobResult:
    result: JobResult
    try:
        result, files = ray.get(reference)
    except ray.exceptions.RayError as death:
        return JobResult(job, lost=str(death).strip().splitlines()[-1])
    for name, content in files.items():
        if not Path(name).exists():
            write_atomically(Path(name), content)
    return result


ENGINES = ("process", "serial", "ray")


def engine_of(name: str, address: str | None = None, workers: int = 0) -> Engine:
    """The engine of that name."""
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}; choose one of {', '.join(ENGINES)}")
    if address is not None and name != "ray":
        raise ValueError(f"--address is the address of a Ray cluster, but the engine is {name!r}: add --engine ray")
    if name == "serial":
        return Serial()
    return Processes(workers) if name == "process" else RayTasks(address, workers)
