"""What predictions are like, in a few numbers that add up over batches: how sure, and of which classes.

A calibration remembers the profile of the rows it was fitted beside; scoring compares. Distances are total variation: the share
of rows that would have to move, between the histograms of confidence, and between the shares of predicted classes. Whether the
rows are unlike those of the fit is told by `compare_rows` on a random sample of them, as in `graphcal watch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphcal.metrics.references import packed, unpacked
from graphcal.metrics.row_comparison import MOST, RowComparison

BINS = 20
MOVED = 0.1  # a distance that is said aloud where the file of the fit holds no sample: one row in ten
LEVEL = 0.01  # of the comparison; that of `graphcal watch` on one window
ROWS = MOST[1]  # of a sample

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Profile:
    """Counts of rows by confidence and by predicted class."""

    confidence: Array  # (BINS,) equal bins of 0..1
    predicted: Array  # (C,)
    total: float = 0.0  # sum of all confidences
    sample: Array | None = (
        None  # (n, 1 + d) a random number and the `sample_values` of the rows that have the smallest ones
    )

    @classmethod
    def of(cls, conf: Array, pred: Array, classes: int) -> Profile:
        small = np.int16 if BINS * classes < 1 << 15 else np.int64
        cell = np.minimum((conf * np.float32(BINS)).astype(small), BINS - 1)
        cell += BINS * pred.astype(small, copy=False)
        both = np.bincount(cell, minlength=BINS * classes).reshape(classes, BINS)
        return cls(both.sum(0), both.sum(1), float(conf.sum(dtype=np.float64)))

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Profile:
        sample = None
        if "sample" in found:
            numbers = unpacked(found["sample"]["numbers"], 1, "<f8")
            sample = np.column_stack([numbers, unpacked(found["sample"]["values"], found["sample"]["columns"])])
        return cls(np.asarray(found["confidence"]), np.asarray(found["predicted"]), float(found["total"]), sample)

    def __add__(self, other: Profile) -> Profile:
        samples = [one.sample for one in (self, other) if one.sample is not None]
        sample = smallest(np.concatenate(samples)) if samples else None
        return Profile(
            self.confidence + other.confidence, self.predicted + other.predicted, self.total + other.total, sample
        )

    def with_sample(self, values: Callable[[Array], Array], seed: Sequence[int]) -> Profile:
        """With a random sample of its rows; ``values`` gives the `sample_values` of rows by number."""
        numbers = np.random.default_rng(seed).random(self.rows)
        rows = np.argpartition(numbers, ROWS)[:ROWS] if len(numbers) > ROWS else np.arange(len(numbers))
        return replace(self, sample=smallest(np.column_stack([numbers[rows], values(rows)])))

    @property
    def rows(self) -> int:
        return int(self.predicted.sum())

    def to_dict(self, sample: bool = False) -> dict[str, Any]:
        counts = {"confidence": self.confidence.tolist(), "predicted": self.predicted.tolist(), "total": self.total}
        if self.sample is None or not sample:
            return counts
        numbers, values = packed(self.sample[:, :1], "<f8"), packed(self.sample[:, 1:])
        return {**counts, "sample": {"columns": self.sample.shape[1] - 1, "numbers": numbers, "values": values}}


def smallest(sample: Array) -> Array:
    """The rows of a sample that have the smallest random numbers, in their order: the same whatever the parts it came in."""
    return sample[np.argsort(sample[:, 0], kind="stable")[:ROWS]]


def distance(a: Array, b: Array) -> float:
    """Total variation between the shares of two counts."""
    return float(np.abs(a / max(a.sum(), 1) - b / max(b.sum(), 1)).sum() / 2)


def drift(then: Profile, now: Profile, comparison: RowComparison | None = None) -> dict[str, Any]:
    """How far the rows that are scored have moved from those of the fit."""
    told = {}
    if comparison is not None:
        told = {
            "unlike": comparison.p <= LEVEL,
            "by": comparison.text("the rows of the fit", "these rows"),
            "p": comparison.p,
        }
    return {
        **told,
        "rows_at_fit": then.rows,
        "mean_confidence_at_fit": then.total / max(then.rows, 1),
        "mean_confidence": now.total / max(now.rows, 1),
        "confidence_shift": distance(then.confidence, now.confidence),
        "predicted_shift": distance(then.predicted, now.predicted),
    }


def drift_text(found: Mapping[str, Any]) -> str:
    """The drift in a sentence."""
    said = (
        f"mean confidence {found['mean_confidence']:.3f}, at the fit {found['mean_confidence_at_fit']:.3f}; "
        f"{100 * found['confidence_shift']:.1f} % of the rows moved in confidence, "
        f"{100 * found['predicted_shift']:.1f} % in predicted class"
    )
    if found.get("unlike", max(found["confidence_shift"], found["predicted_shift"]) > MOVED):
        reason = f" ({found['by']})" if "by" in found else ""
        said += f". These rows are unlike those of the fit{reason}: measure on fresh labels (graphcal check) first"
    return said
