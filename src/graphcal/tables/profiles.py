"""What predictions are like, in a few numbers that add up over batches: how sure, and of which classes.

A calibration remembers the profile of the rows it was fitted beside; scoring compares. Distances are total variation: the share
of rows that would have to move, between the histograms of confidence, and between the shares of predicted classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 20
MOVED = 0.1  # a distance that is said aloud: one row in ten

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Profile:
    """Counts of rows by confidence and by predicted class."""

    confidence: Array  # (BINS,) equal bins of 0..1
    predicted: Array  # (C,)
    total: float = 0.0  # sum of all confidences

    @classmethod
    def of(cls, conf: Array, pred: Array, classes: int) -> Profile:
        small = np.int16 if BINS * classes < 1 << 15 else np.int64
        cell = np.minimum((conf * np.float32(BINS)).astype(small), BINS - 1)
        cell += BINS * pred.astype(small, copy=False)
        both = np.bincount(cell, minlength=BINS * classes).reshape(classes, BINS)
        return cls(both.sum(0), both.sum(1), float(conf.sum(dtype=np.float64)))

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Profile:
        return cls(np.asarray(found["confidence"]), np.asarray(found["predicted"]), float(found["total"]))

    def __add__(self, other: Profile) -> Profile:
        return Profile(self.confidence + other.confidence, self.predicted + other.predicted, self.total + other.total)

    @property
    def rows(self) -> int:
        return int(self.predicted.sum())

    def to_dict(self) -> dict[str, Any]:
        return {"confidence": self.confidence.tolist(), "predicted": self.predicted.tolist(), "total": self.total}


def distance(a: Array, b: Array) -> float:
    """Total variation between the shares of two counts."""
    return float(np.abs(a / max(a.sum(), 1) - b / max(b.sum(), 1)).sum() / 2)


def drift(then: Profile, now: Profile) -> dict[str, Any]:
    """How far the rows that are scored have moved from those of the fit."""
    return {
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
    if max(found["confidence_shift"], found["predicted_shift"]) > MOVED:
        said += (
            ". These rows are unlike those of the fit: measure on fresh labels (graphcal check) before you rely on them"
        )
    return said
