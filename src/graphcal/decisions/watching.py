"""Watch a calibrator in use: predictions now against those at fitting time, per window, and the promise against new labels.

One line comes out: still valid, drifting, or expired, and what to do.
    expired    the sequential test (`betting`) refutes the promised risk of the approved nodes
    drifting   in some window the predictions differ from those at fitting time by more than chance (`compare_rows`, as in
               `graphcal score`), or the calibration slope of its labels is off 1; the level of both tests is divided by the
               number of windows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphcal.decisions.betting import labels_until_broken, log_capital
from graphcal.decisions.bounds import Array, labels_needed
from graphcal.decisions.decision import Interval
from graphcal.decisions.drift import calibration_slope
from graphcal.metrics.bins import confidence
from graphcal.metrics.references import compare_with, degrees
from graphcal.metrics.row_comparison import DRAWS, RowComparison, sample_values

Status = Literal["still valid", "drifting", "expired"]
LEVEL = 0.01  # of the comparisons of one watch, all together; the same of the slopes
SMALLEST_P = 1 / (DRAWS + 1)  # of a comparison
MOST_WINDOWS = 12


@dataclass(frozen=True)
class Window:
    """Predictions of one stretch of time."""

    name: str
    nodes: int
    confidence: float  # mean
    prior: tuple[float, ...]  # mean probability of each class
    comparison: RowComparison | None  # with the rows at fitting time; None for files that hold no sample of them
    labels: int
    accuracy: float | None
    slope: Interval | None  # calibration slope with its interval, corrected
    drifting: tuple[str, ...]  # what has changed notably

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Risk:
    """The promise against the labels of approved nodes, in the order they came."""

    threshold: float
    max_error: float
    labels: int
    errors: int
    evidence: float  # the gambler's largest capital; 1/α refutes
    broken_after: int | None  # labels

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Validity:
    """What was seen, and the line."""

    windows: tuple[Window, ...]
    risk: Risk | None
    alpha: float

    @property
    def status(self) -> Status:
        if self.risk is not None and self.risk.broken_after is not None:
            return "expired"
        return "drifting" if any(w.drifting for w in self.windows) else "still valid"

    @property
    def sentence(self) -> str:
        """Status, reason, and what to do."""
        if self.status == "expired":
            assert self.risk is not None
            need = labels_needed(self.risk.max_error, 0.95)
            return (
                f"Expired: {self.risk.errors:,} of {self.risk.labels:,} labelled approved nodes are wrong, more than the "
                f"promised {100 * self.risk.max_error:g} % allows (refuted after {self.risk.broken_after:,} labels). Stop "
                f"deciding automatically, label at least {need:,} nodes drawn at random, fit again and run graphcal decide."
            )
        if self.status == "drifting":
            off = [w for w in self.windows if w.drifting]
            where = f"{off[0].name}: {', '.join(off[0].drifting)}" + (
                f" and {len(off) - 1} more windows" if len(off) > 1 else ""
            )
            return (
                f"Drifting ({where}): the promise may not hold much longer. Label nodes drawn at random from the newest window, "
                "then fit again or run graphcal decide with them."
            )
        nodes = sum(w.nodes for w in self.windows)
        if self.risk is None and any(w.labels for w in self.windows):
            labels = sum(w.labels for w in self.windows)
            return (
                f"Still valid: {nodes:,} predictions look like those at fitting time, and so do their confidences against "
                f"{labels:,} labels. No promise is known to test; give its --threshold and --max-error, as graphcal decide said."
            )
        if self.risk is None:
            return (
                f"Still valid as far as {nodes:,} predictions without labels can tell: they look like those at fitting time. "
                "Labels of a few approved nodes drawn at random would test the promise itself."
            )
        return (
            f"Still valid: {nodes:,} predictions look like those at fitting time, and {self.risk.errors:,} errors in "
            f"{self.risk.labels:,} labelled approved nodes do not refute the promised {100 * self.risk.max_error:g} %. Go on."
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "sentence": self.sentence,
            "windows": [w.to_dict() for w in self.windows],
            "risk": None if self.risk is None else self.risk.to_dict(),
            "alpha": self.alpha,
        }


def watch(
    reference: Mapping[str, Any],
    log_probs: Tensor,
    y: Tensor | None = None,
    time: Sequence[Any] | Array | None = None,
    graph: Any = None,
    promise: Mapping[str, float] | None = None,
    alpha: float = 0.05,
    names: Sequence[str] | None = None,
) -> Validity:
    """Compare predictions (N, C) as served, calibrated, with the ``reference`` of fitting time.

    ``time`` (N,) cuts windows: by its values where they are few, else into equal parts. ``y`` (N,) holds labels where they have
    arrived, -1 elsewhere. ``promise`` (threshold, max_error) defaults to the reference's; ``names`` are those of the classes.

    >>> import graphcal as gc
    >>> g = torch.Generator().manual_seed(0)
    >>> now, later = ((3 * s * torch.randn(2000, 4, generator=g)).log_softmax(1) for s in (1.0, 0.4))
    >>> reference = gc.metrics.reference_summary(now)
    >>> watch(reference, now).status, watch(reference, later).status
    ('still valid', 'drifting')
    """
    if len(reference["predicted"]) != log_probs.shape[1]:
        raise ValueError(
            f"the calibrator was fitted on {len(reference['predicted'])} classes, the predictions have {log_probs.shape[1]}"
        )
    cuts = windows_of(time, len(log_probs))
    y = torch.full((len(log_probs),), -1) if y is None else y
    level = LEVEL / len(cuts)
    degree = None if graph is None else degrees(graph)
    windows = tuple(measure_window(name, rows, reference, log_probs, y, level, degree, names) for name, rows in cuts)
    promise = reference.get("promise") if promise is None else promise
    order = np.arange(len(log_probs)) if time is None else np.argsort(np.asarray(time), kind="stable")
    return Validity(windows, None if promise is None else check_risk(promise, log_probs, y, order, alpha), alpha)


def windows_of(time: Sequence[Any] | Array | None, nodes: int) -> list[tuple[str, Array]]:
    """Names and row numbers, oldest first."""
    if time is None:
        return [("all", np.arange(nodes))]
    values = np.asarray(time)
    if len(values) != nodes:
        raise ValueError(f"time has {len(values)} entries for {nodes} predictions")
    if values.dtype.kind not in "iufM" or (values.dtype.kind in "fM" and (values != values).any()):
        raise ValueError(
            f"time must hold numbers or datetime64 without gaps, got {values.dtype}: text does not sort as time does. "
            "graphcal watch reads columns of text"
        )
    each = np.unique(values)
    if len(each) <= MOST_WINDOWS:
        return [(str(value), np.flatnonzero(values == value)) for value in each]
    order = np.argsort(values, kind="stable")
    return [(f"{values[rows[0]]} to {values[rows[-1]]}", rows) for rows in np.array_split(order, 10)]


def measure_window(
    name: str,
    rows: Array,
    reference: Mapping[str, Any],
    log_probs: Tensor,
    y: Tensor,
    level: float,
    degree: Array | None,
    names: Sequence[str] | None,
) -> Window:
    """Compare one window with the reference; ``level`` is that of each of its tests."""
    index = torch.from_numpy(rows)
    now, labels = log_probs[index], y[index]
    probs = now.double().exp()
    sample = reference.get("sample")
    comparison = None
    if sample is not None:
        values = sample_values(probs.numpy(), sample["classes"])
        comparison = compare_with(reference, values, None if degree is None else degree[rows], names)
    labelled = (labels >= 0).numpy()
    conf = confidence(now)[0].numpy()
    right = (now.argmax(dim=1) == labels).numpy()
    slope = calibration_slope(conf[labelled], right[labelled], 1 - level) if labelled.sum() >= 30 else None
    drifting = []
    if comparison is not None and comparison.p <= max(level, SMALLEST_P):
        drifting.append(comparison.text("the rows of the fit", "this window"))
    if slope is not None and not slope.low <= 1 <= slope.high:
        drifting.append(f"calibration slope {slope.value:.2f}")
    return Window(
        name,
        len(rows),
        float(conf.mean()),
        tuple(probs.mean(dim=0).tolist()),
        comparison,
        int(labelled.sum()),
        float(right[labelled].mean()) if labelled.any() else None,
        slope,
        tuple(drifting),
    )


def check_risk(promise: Mapping[str, float], log_probs: Tensor, y: Tensor, order: Array, alpha: float) -> Risk | None:
    """The sequential test on the labelled nodes at or above the threshold, oldest first; None without such a node."""
    conf = confidence(log_probs)[0].numpy()
    approved = order[(y.numpy() >= 0)[order] & (conf >= promise["threshold"])[order]]
    if len(approved) == 0:
        return None
    wrong = (log_probs.argmax(dim=1) != y).numpy()[approved]
    capital = log_capital(wrong, promise["max_error"])
    return Risk(
        promise["threshold"],
        promise["max_error"],
        len(wrong),
        int(wrong.sum()),
        float(np.exp(np.minimum(capital.max(), 700.0))),
        labels_until_broken(wrong, promise["max_error"], alpha),
    )
