"""Input checks of the metrics, and one fast pass over the inputs.

Log-probabilities (N, C) and class numbers (N,): everything else is refused, never guessed. A library that guesses whether a
tensor holds logits or probabilities guesses per batch, and is then silently wrong.

The pass takes rows a chunk at a time, in numpy and with the classes along the first axis: several times faster than
reductions along short rows, and free of the thread barriers that cost more than the work at this size. Confidence is
computed in one place, `exp_top`, so that every metric puts a node into the same bin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TOLERANCE = 1e-3  # |log Σ_k p_k| allowed: float32 sums over thousands of classes and bfloat16 models stay below it
# All memory beyond the inputs is a few copies of one chunk per thread. Smaller chunks wait for the interpreter's lock.
CHUNK = 1 << 17  # rows
MANY = 4  # chunks from which threads are worth starting
# Nodes up to which draws resample nodes. Beyond, sums over bins and blocks are normal with the covariance that resampling has.
RESAMPLE_UP_TO = 20_000

Array = NDArray[Any]
T = TypeVar("T")


def check_log_probs(log_probs: Tensor) -> None:
    """Refuse anything but a finite-or-minus-infinity (N, C) tensor whose rows are log-probabilities."""
    if not isinstance(log_probs, Tensor):
        raise ValueError(f"log_probs must be a torch tensor (N, C), got {type(log_probs).__name__}")
    if log_probs.ndim != 2 or not log_probs.is_floating_point():
        raise ValueError(
            "log_probs must be a floating point tensor of shape (N, C), got shape "
            f"{tuple(log_probs.shape)} and dtype {log_probs.dtype}"
        )
    if log_probs.shape[0] == 0 or log_probs.shape[1] < 2:
        raise ValueError(
            f"log_probs must have at least one node and two classes, got shape {tuple(log_probs.shape)}; "
            "is the mask empty?"
        )
    check_rows(log_probs)


def check_rows(log_probs: Tensor) -> None:
    """Refuse rows that do not sum to one as probabilities."""
    total = torch.logsumexp(log_probs, dim=1)  # (N,)  0 for log-probabilities
    off = total.abs().max()
    if bool(off <= TOLERANCE):
        return
    if bool(log_probs.isnan().any()):
        bad = int(log_probs.isnan().any(dim=1).sum())
        raise ValueError(
            f"log_probs has NaN in {bad} of {log_probs.shape[0]} rows; the model diverged or divided by zero"
        )
    sums = log_probs.double().sum(dim=1)
    if bool((log_probs >= 0).all()) and bool(((sums - 1).abs() <= TOLERANCE).all()):
        raise ValueError("log_probs holds probabilities (rows sum to 1); pass probs.log() instead")
    raise ValueError(
        "log_probs does not hold log-probabilities: log of the row sum should be 0 but reaches "
        f"{float(off):.3g}; if these are logits, pass logits.log_softmax(dim=-1)"
    )


def check_labels(y: Tensor, log_probs: Tensor) -> None:
    """Refuse labels that are not class numbers 0..C-1, one per row."""
    if not isinstance(y, Tensor):
        raise ValueError(f"y must be a torch tensor of class numbers, got {type(y).__name__}")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise ValueError(f"y must hold integer class numbers, got dtype {y.dtype}")
    N, C = log_probs.shape
    if y.shape != (N,):
        raise ValueError(f"y must have shape ({N},) to match log_probs, got {tuple(y.shape)}")
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= C:
        hint = "; nodes without a label must be left out with the mask" if low < 0 else ""
        raise ValueError(f"y must lie in 0..{C - 1}, got values from {low} to {high}{hint}")


def check_bins(bins: int) -> None:
    """Refuse a number of bins that is not a positive integer."""
    if not isinstance(bins, int) or isinstance(bins, bool) or bins < 1:
        raise ValueError(f"bins must be a positive integer, got {bins!r}")


def check(log_probs: Tensor, y: Tensor) -> None:
    """Both checks: what every metric of labels calls first."""
    check_log_probs(log_probs)
    check_labels(y, log_probs)


def per_seed(log_probs: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """Return a list with one tensor per seed; a single tensor is one seed."""
    return [log_probs] if isinstance(log_probs, Tensor) else list(log_probs)


def exp_top(top: Array) -> Array:
    """THE confidence of a row: exp of its largest log-probability, in double precision, at most 1."""
    return np.minimum(np.exp(top.astype(np.float64, copy=False)), 1.0)


@dataclass(frozen=True, eq=False)
class RowChunk:
    """Some checked rows."""

    by_class: Array  # (C, n)  log-probabilities
    y: Array  # (n,)
    pred: Array  # (n,)  the first class wins a tie
    conf: Array  # (n,)  float64
    start: int = 0  # number of the first row among all

    @property
    def right(self) -> Array:
        """(n,) bool."""
        return np.asarray(self.pred == self.y.astype(self.pred.dtype))

    @property
    def of_label(self) -> Array:
        """(n,) log-probability of the label, float64."""
        return np.asarray(np.take_along_axis(self.by_class, self.y[None], axis=0)[0], np.float64)


def first_largest(by_class: Array) -> tuple[Array, Array]:
    """Largest value (n,) and its class (n,); for few classes class by class, several times faster than `argmax`."""
    if len(by_class) > 32:
        return by_class.max(axis=0), by_class.argmax(axis=0)
    top, pred = by_class[0].copy(), np.zeros(by_class.shape[1], np.uint8)
    for k, row in enumerate(by_class[1:], start=1):
        larger = row > top
        np.maximum(top, row, out=top)
        np.maximum(pred, larger.view(np.uint8) * np.uint8(k), out=pred)  # k grows, so the last larger class stays
    return top, pred


def read_chunk(log_probs: Tensor, y: Tensor, start: int = 0) -> RowChunk:
    """Confidence and prediction of some rows; refuses what is not log-probabilities or class numbers."""
    rows = log_probs.detach().cpu()
    rows = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    by_class, label = np.ascontiguousarray(rows.numpy().T), y.cpu().numpy().astype(np.int64, copy=False)
    if label.view(np.uint64).max() >= len(by_class):  # a negative label is a huge unsigned one
        check_labels(y, log_probs)
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.exp(by_class).sum(axis=0)  # (n,)  1 for log-probabilities
        if not max(total.max() - 1, 1 - total.min()) <= TOLERANCE:
            check_rows(log_probs)
    top, pred = first_largest(by_class)
    return RowChunk(by_class, label, pred, exp_top(top), start)


def map_chunks(log_probs: Tensor, y: Tensor, f: Callable[[RowChunk], T]) -> Iterator[T]:
    """f of each chunk, in order. Long inputs are shared among threads: numpy lets go of the interpreter's lock."""
    check_log_probs(log_probs[:1])
    if len(y) != len(log_probs):
        check_labels(y, log_probs)
    check_labels(y[:1], log_probs[:1])

    def one(start: int) -> T:
        return f(read_chunk(log_probs[start : start + CHUNK], y[start : start + CHUNK], start))

    starts = range(0, len(y), CHUNK)
    if len(starts) < MANY:
        yield from map(one, starts)
    else:
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            yield from pool.map(one, starts)


def map_reduce(log_probs: Tensor, y: Tensor, f: Callable[[RowChunk], T]) -> T:
    """The sum of f over all chunks: f gives anything that adds."""
    parts = map_chunks(log_probs, y, f)
    result = next(parts)
    for part in parts:
        result = result + part  # type: ignore[operator]
    return result
