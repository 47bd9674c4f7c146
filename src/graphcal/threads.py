"""Number of threads that torch computes with.

On small matrices a second thread waits more than it works, and on a busy machine all of them wait for the slowest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

SMALL = 2**20  # entries of the largest matrix


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread inside a ``with`` block, or inside a function with the decorator ``@one_thread()``.

    Every fit has it: fits are hundreds of small operations, and sums are added in one order, whatever the machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(entries: int) -> AbstractContextManager[None]:
    """One thread where the largest matrix has few entries; else as many as torch has."""
    return one_thread() if entries <= SMALL else nullcontext()
