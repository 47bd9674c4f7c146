"""Which replicas train side by side, and on which threads.

Replicas that train on the same nodes share a chunk; a chunk is one stack. There are as many threads as torch has, and each trains
whole chunks with one torch thread. That is faster than splitting every operation between torch's threads, which then wait for
each other after each operation, and by far faster on a machine that others use as well. A single chunk keeps torch's threads.

A chunk is large enough that Python's share of an epoch stays small, and small enough that what all its layers keep for the
backward pass stays within CHUNK_BYTES: what streams through memory gains nothing by being stacked, and much of it at once loses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
LARGEST = 8  # replicas in a chunk: beyond this Python's share no longer falls
CHUNK_BYTES = 2**28  # of the activations of all layers and replicas of a chunk


@dataclass
class Chunk:
    """Some of the replicas, and how far they are."""

    members: list[int]
    epoch: int = 0
    running: int = 0
    cancelled: Event = field(default_factory=Event)

    def report(self, epoch: int, running: int) -> bool:
        """Notes the state. False: there is nothing left to do."""
        self.epoch, self.running = epoch, running
        return running > 0 and not self.cancelled.is_set()


def split_into_chunks(masks: Sequence[tuple[Tensor, Tensor]], activations: int) -> list[Chunk]:
    """The replicas in chunks, those with equal masks together. ``activations``: numbers in all layers of one replica."""
    threads = torch.get_num_threads()
    by_masks: dict[bytes, list[int]] = {}
    for i, pair in enumerate(masks):
        by_masks.setdefault(b"".join(mask.cpu().numpy().tobytes() for mask in pair), []).append(i)
    room = CHUNK_BYTES // (4 * activations)
    share = -(-len(masks) // threads)
    size = max(1, min(LARGEST, share, room))
    chunks: list[Chunk] = []
    rest: list[int] = []  # groups smaller than a chunk are put together: their fields are joined
    for group in by_masks.values():
        if len(group) < size:
            rest += group
            continue
        pieces = -(-len(group) // size)
        chunks += [Chunk(group[k::pieces]) for k in range(pieces)]
    chunks += [Chunk(rest[k : k + size]) for k in range(0, len(rest), size)]
    for chunk in chunks:
        chunk.running = len(chunk.members)
    return chunks


def run_in_threads(
    job: Callable[[Chunk], T], chunks: Sequence[Chunk], epochs: int, progress: Callable[[int, int, int], None] | None
) -> list[T]:
    """``job`` of every chunk. Progress is reported from the calling thread, a few times a second."""
    threads = torch.get_num_threads()
    workers = min(threads, len(chunks))
    cancelled = Event()
    for chunk in chunks:
        chunk.cancelled = cancelled

    def alone(chunk: Chunk) -> T:
        torch.set_num_threads(max(1, threads // workers))
        return job(chunk)

    with ThreadPoolExecutor(workers) as pool:
        try:
            futures = [pool.submit(alone, chunk) for chunk in chunks]
            pending: set[Any] = set(futures)
            while pending:
                done, pending = wait(pending, timeout=0.3, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                if progress is not None:
                    progress(max(c.epoch for c in chunks), epochs, sum(c.running for c in chunks))
            return [future.result() for future in futures]
        except BaseException:
            cancelled.set()
            for future in futures:
                future.cancel()
            raise
        finally:
            torch.set_num_threads(threads)
