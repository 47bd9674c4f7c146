"""Monitor a calibrator in use: predictions now against those at fitting time, per window, and the promise against new labels.

    expired    the sequential test (`bounds`) refutes the promised risk of the approved nodes
    drifting   in some window the predictions differ from those at fitting time by more than chance (`compare_rows`, as in
               `graphcal score`), or the calibration slope of its labels is off 1; the level of both tests is divided by the
               number of windows
    still valid    otherwise

Calibration slope: b in  P(right) = σ(a + b logit(conf)), 1 for honest confidences and below 1 for overconfident ones; fitted by
maximum likelihood, with Wald's interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from graphcal.decisions.bounds import Array, labels_needed, labels_until_refuted, log_e_value
from graphcal.decisions.decision import Decision, Interval, Promise, class_number, score_of
from graphcal.metrics.bins import confidence
from graphcal.metrics.references import compare_with, degrees
from graphcal.metrics.row_comparison import DRAWS, RowComparison, sample_values
from graphcal.text import plural, summary_html, summary_text

Status = Literal["still valid", "drifting", "expired"]
LEVEL = 0.01  # of the comparisons of one watch, all together; the same of the slopes
SMALLEST_P = 1 / (DRAWS + 1)  # of a comparison
MOST_WINDOWS = 12
SCHEMA = 1  # of the JSON of `graphcal watch`


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
    evidence: float  # largest e-value; 1/α refutes
    refuted_after: int | None  # labels

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class MonitorReport:
    """Windows compared with fitting time, the test of the promise, and the status."""

    windows: tuple[Window, ...]
    risk: Risk | None
    alpha: float

    @property
    def status(self) -> Status:
        if self.risk is not None and self.risk.refuted_after is not None:
            return "expired"
        return "drifting" if any(w.drifting for w in self.windows) else "still valid"

    @property
    def sentence(self) -> str:
        """Status, reason, and what to do."""
        return f"{self.status.capitalize()}: {self.reason}. {self.advice}"

    @property
    def summary(self) -> list[tuple[str, str]]:
        """Headings and texts for a terminal or a notebook."""
        rows = [("Status", self.status), ("Because", self.reason), ("Next", self.advice)]
        if self.risk is not None:
            rows.insert(2, ("Evidence", f"e-value {self.risk.evidence:.3g}; {1 / self.alpha:g} refutes the promise"))
        return rows

    def __str__(self) -> str:
        return summary_text(self.summary)

    def _repr_html_(self) -> str:
        return summary_html(self.summary)

    @property
    def reason(self) -> str:
        """Reason for the status."""
        rows, labels = sum(w.nodes for w in self.windows), sum(w.labels for w in self.windows)
        if self.status == "drifting":
            off = [w for w in self.windows if w.drifting]
            more = f" and {plural(len(off) - 1, 'more window')}" if len(off) > 1 else ""
            return f"{off[0].name}: {', '.join(off[0].drifting)}{more}"
        if self.status == "expired":
            assert self.risk is not None
            return (
                f"{self.risk.errors:,} of {self.risk.labels:,} labelled approved rows are wrong, more than the promised "
                f"{100 * self.risk.max_error:g} % allows (refuted after {plural(self.risk.refuted_after or 0, 'label')})"
            )
        alike = f"{plural(rows, 'prediction')} look{'s' * (rows == 1)} like those at fitting time"
        if self.risk is not None:
            return (
                f"{alike}, and {plural(self.risk.errors, 'error')} in {plural(self.risk.labels, 'labelled approved row')} "
                f"{'does' if self.risk.errors == 1 else 'do'} not refute the promised {100 * self.risk.max_error:g} %"
            )
        return f"{alike}, and so do their confidences against {plural(labels, 'label')}" if labels else alike

    @property
    def advice(self) -> str:
        """Next step for the user."""
        if self.status == "expired":
            assert self.risk is not None
            need = labels_needed(self.risk.max_error, 0.95)
            return f"Stop deciding automatically. Label at least {need:,} rows drawn at random, fit again, run graphcal decide."
        if self.status == "drifting":
            return (
                "The promise may not hold much longer. Label rows drawn at random from the newest window, then fit again or run "
                "graphcal decide with them."
            )
        if self.risk is not None:
            return "Go on."
        if any(w.labels for w in self.windows):
            return "No promise was tested: pass --decision FILE, as graphcal decide wrote it."
        return "Labels of a few approved rows drawn at random would test the promise itself."

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
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
    decision: Decision | None = None,
    alpha: float = 0.05,
    names: Sequence[str] | None = None,
) -> MonitorReport:
    """Compare predictions (N, C) as served, calibrated, with the ``reference`` of fitting time.

    ``time`` (N,) cuts windows: by its values where they are few, else into equal parts. ``y`` (N,) holds labels where they have
    arrived, -1 elsewhere. The promise of ``decision`` is tested against them, else the one in the reference. ``names`` are those
    of the classes.

    >>> import graphcal
    >>> g = torch.Generator().manual_seed(0)
    >>> now, later = ((3 * s * torch.randn(2000, 4, generator=g)).log_softmax(1) for s in (1.0, 0.4))
    >>> reference = graphcal.metrics.reference_summary(now)
    >>> watch(reference, now).status, watch(reference, later).status
    ('still valid', 'drifting')
    """
    if len(reference["predicted"]) != log_probs.shape[1]:
        raise ValueError(
            f"the calibrator was fitted on {len(reference['predicted'])} classes, the predictions have {log_probs.shape[1]}"
        )
    if decision is not None and decision.num_classes != log_probs.shape[1]:
        raise ValueError(f"the decision was made on {decision.num_classes} classes, got {log_probs.shape[1]}")
    cuts = windows_of(time, len(log_probs))
    y = torch.full((len(log_probs),), -1) if y is None else y
    level = LEVEL / len(cuts)
    degree = None if graph is None else degrees(graph)
    windows = tuple(measure_window(name, rows, reference, log_probs, y, level, degree, names) for name, rows in cuts)
    order = np.arange(len(log_probs)) if time is None else np.argsort(np.asarray(time), kind="stable")
    stored = reference.get("promise")
    if decision is not None:
        promise, threshold = replace(decision.promise, positive=decision.positive), decision.threshold
    elif stored is not None:
        promise, threshold = Promise(stored["max_error"], stored["certainty"]), stored["threshold"]
    else:
        promise, threshold = Promise(), None
    risk = None if threshold is None else check_risk(promise, threshold, log_probs, y, order, alpha)
    return MonitorReport(windows, risk, alpha)


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


def check_risk(
    promise: Promise, threshold: float, log_probs: Tensor, y: Tensor, order: Array, alpha: float
) -> Risk | None:
    """Test the promise on the labelled nodes at or above the threshold, oldest first; None without such a node."""
    target = class_number(promise.positive, log_probs.shape[1], None)
    above = (score_of(log_probs, target) >= threshold).numpy()
    approved = order[((y.numpy() >= 0) & above)[order]]
    if len(approved) == 0:
        return None
    claim = log_probs.argmax(dim=1) if target is None else target
    wrong = (y != claim).numpy()[approved]
    return Risk(
        threshold=threshold,
        max_error=promise.max_error,
        labels=len(wrong),
        errors=int(wrong.sum()),
        evidence=float(np.exp(np.minimum(log_e_value(wrong, promise.max_error).max(), 700.0))),
        refuted_after=labels_until_refuted(wrong, promise.max_error, alpha),
    )


def calibration_slope(conf: Array, right: Array, certainty: float = 0.95, steps: int = 50) -> Interval | None:
    """Estimate b with its interval; None where all are right or all wrong, or confidence does not vary."""
    x = np.clip(conf.astype(float), 1e-6, 1 - 1e-6)
    x = np.log(x / (1 - x))
    if right.all() or not right.any() or np.ptp(x) < 1e-9:
        return None
    design, beta = np.column_stack([np.ones(len(x)), x]), np.array([0.0, 1.0])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-np.clip(design @ beta, -30, 30)))
        weight = np.maximum(p * (1 - p), 1e-9)
        hessian = design.T @ (design * weight[:, None]) + 1e-9 * np.eye(2)
        step = np.linalg.solve(hessian, design.T @ (right - p))
        beta = beta + step / max(1.0, float(np.abs(step).max()))  # at most one unit at a time
        if np.abs(step).max() < 1e-9:
            break
    width = float(ndtri((1 + certainty) / 2) * np.sqrt(np.linalg.inv(hessian)[1, 1]))
    return Interval(float(beta[1]), float(beta[1]) - width, float(beta[1]) + width)
