"""One fast pass over rows: checked confidences and rightness, a chunk at a time.

Everything per row happens here, in numpy and with the classes along the first axis: several
times faster than reductions along short rows, and free of the thread barriers that cost more than the work at this size.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from graphcal.metrics.inputs import TOLERANCE, check_labels, check_log_probs, check_rows

# All memory beyond the inputs is a few copies of one chunk for each thread. Smaller chunks wait for the interpreter's lock.
CHUNK = 1 << 17  # rows
MANY = 4  # chunks from which threads are worth starting

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Rows:
    """A chunk of checked rows."""

    by_class: np.ndarray  # (C, n)  log-probabilities
    y: np.ndarray  # (n,)
    pred: np.ndarray  # (n,)  the first class wins a tie
    conf: np.ndarray  # (n,)  float64

    @property
    def right(self) -> np.ndarray:
        """(n,) bool."""
        return self.pred == self.y.astype(self.pred.dtype)

    @property
    def of_label(self) -> np.ndarray:
        """(n,) log-probability of the label, float64."""
        return np.take_along_axis(self.by_class, self.y[None], axis=0)[0].astype(np.float64)


def first_largest(by_class: np.ndarray) -> np.ndarray:
    """(n,) argmax over the classes; for few classes class by class, which is several times faster than `argmax`."""
    if len(by_class) > 32:
        return by_class.argmax(axis=0)
    top, pred = by_class[0].copy(), np.zeros(by_class.shape[1], np.uint8)
    for k, row in enumerate(by_class[1:], start=1):
        larger = row > top
        np.maximum(top, row, out=top)
        np.maximum(pred, larger.view(np.uint8) * np.uint8(k), out=pred)  # k grows, so the last larger class stays
    return pred


def as_numpy(rows: Tensor) -> np.ndarray:
    """Rows as a float32 or float64 array; narrower floats are widened."""
    rows = rows.detach().cpu()
    return (rows if rows.dtype in (torch.float32, torch.float64) else rows.float()).numpy()


def look_at(log_probs: Tensor, y: Tensor) -> Rows:
    """Confidence and rightness of one chunk; refuses what is not log-probabilities or class numbers."""
    by_class, label = np.ascontiguousarray(as_numpy(log_probs).T), y.cpu().numpy().astype(np.int64, copy=False)
    if label.view(np.uint64).max() >= len(by_class):  # a negative label is a huge unsigned one
        check_labels(y, log_probs)
    with np.errstate(over="ignore", invalid="ignore"):
        probs = np.exp(by_class)
        total = probs.sum(axis=0)  # (n,)  1 for log-probabilities
        if not max(total.max() - 1, 1 - total.min()) <= TOLERANCE:
            check_rows(log_probs)
    return Rows(by_class, label, first_largest(by_class), np.minimum(probs.max(axis=0), 1).astype(np.float64))


def over_chunks(log_probs: Tensor, y: Tensor, f: Callable[[Rows], T]) -> Iterator[T]:
    """f of each chunk, in order. Long inputs are shared among threads: numpy lets go of the interpreter's lock."""
    check_log_probs(log_probs[:1])
    if len(y) != len(log_probs):
        check_labels(y, log_probs)
    check_labels(y[:1], log_probs[:1])

    def one(start: int) -> T:
        return f(look_at(log_probs[start : start + CHUNK], y[start : start + CHUNK]))

    starts = range(0, len(y), CHUNK)
    if len(starts) < MANY:
        yield from map(one, starts)
    else:
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            yield from pool.map(one, starts)


def total(log_probs: Tensor, y: Tensor, f: Callable[[Rows], np.ndarray]) -> np.ndarray:
    """The sum of f over all chunks."""
    parts = over_chunks(log_probs, y, f)
    result = next(parts)
    for part in parts:
        result = result + part
    return result
