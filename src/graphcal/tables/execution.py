"""Where shards are scored: in threads of this process, in a pool of processes, or on a Ray cluster. The same files from each.

Threads are enough on one machine: decoding, encoding and arithmetic run outside the interpreter's lock, and nothing is loaded
twice. Ray Data hands out shards as rows of a dataset; machines need the folders of input and output in common. Everywhere one
batch of a shard is written while the next one is made, so that a single file keeps two processors busy too.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from functools import partial
from typing import Any, TypeVar

ENGINES = ("local", "process", "ray")
Job = TypeVar("Job")
Item = TypeVar("Item")


def run_jobs(
    work: Callable[[Job], dict[str, Any]], jobs: Sequence[Job], engine: str = "local", workers: int = 0,
    address: str | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """What ``work`` says of every job, in the order in which jobs end; the first fault ends all."""
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; choose one of {', '.join(ENGINES)}")
    if address is not None and engine != "ray":
        raise ValueError(f"--address is the address of a Ray cluster, but the engine is {engine!r}: add --engine ray")
    processors = os.cpu_count() or 1
    count = min(workers or processors, max(len(jobs), 1))
    if engine == "ray":
        return on_ray(work, jobs, count, address)
    if engine == "process":
        return in_pool(work, jobs, ProcessPoolExecutor(count, multiprocessing.get_context("spawn")))
    return in_pool(work, jobs, ThreadPoolExecutor(count))


def made_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; while one is used, a thread makes the next."""
    nothing = object()
    with ThreadPoolExecutor(1) as maker:
        coming: Future[Any] = maker.submit(next, items, nothing)
        while (item := coming.result()) is not nothing:
            coming = maker.submit(next, items, nothing)
            yield item


def in_pool(work: Callable[[Job], dict[str, Any]], jobs: Sequence[Job], pool: Executor) -> Iterator[dict[str, Any]]:
    try:
        running = [pool.submit(work, job) for job in jobs]
        for done in as_completed(running):
            yield done.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def on_ray(
    work: Callable[[Job], dict[str, Any]], jobs: Sequence[Job], count: int, address: str | None
) -> Iterator[dict[str, Any]]:
    """By Ray Data, one row per job."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise ValueError("--engine ray needs Ray: pip install 'graphcal[ray]'; or choose local or process") from None
    started = not ray.is_initialized()
    if started:
        local: dict[str, Any] = {} if address else {"num_cpus": count}
        ray.init(address=address, include_dashboard=False, log_to_driver=False, configure_logging=False, **local)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        numbers = ray.data.from_items([{"job": k} for k in range(len(jobs))], override_num_blocks=max(len(jobs), 1))
        for row in numbers.map(partial(_told, work, list(jobs))).iter_rows():
            if row["fault"]:
                raise ValueError(row["fault"])
            yield json.loads(row["result"])
    finally:
        if started:
            ray.shutdown()


def _told(work: Callable[[Any], dict[str, Any]], jobs: list[Any], row: dict[str, Any]) -> dict[str, str]:
    """The work of one row; a refusal is a value, since Ray would wrap it in a page of its own."""
    try:
        return {"result": json.dumps(work(jobs[row["job"]])), "fault": ""}
    except (ValueError, OSError) as fault:
        return {"result": "", "fault": str(fault)}
