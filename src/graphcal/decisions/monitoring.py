"""Monitor a calibrator in use: predictions now against those at fitting time, per window, and the promise against new labels.

    expired    the sequential test (`bounds`) refutes the promised risk of the approved nodes
    drifting   in some window the predictions differ from those at fitting time by more than chance (`compare_rows`, as in
               `graphcal score`), or the calibration slope of its labels is off 1, or the precision of its labelled alerts is
               outside the interval expected of it; the level of each test is divided by the number of windows
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

from graphcal.core import Calibration, Outputs
from graphcal.decisions.alerts import percent
from graphcal.decisions.bounds import Array, labels_needed, labels_until_refuted, log_e_value, share_interval
from graphcal.decisions.decision import Decision, Interval, Promise, class_number, score_of
from graphcal.decisions.estimates import WindowAccuracy, estimate
from graphcal.decisions.windows import QueueEstimate, WindowEstimate, cut_windows
from graphcal.metrics.bins import confidence
from graphcal.metrics.references import compare_with, degrees
from graphcal.metrics.row_comparison import DRAWS, RowComparison, sample_values
from graphcal.text import Summarized, plural

Status = Literal["still valid", "drifting", "expired"]
LEVEL = 0.01  # of the comparisons of one watch, all together; the same of the slopes, and of the precisions
SMALLEST_P = 1 / (DRAWS + 1)  # of a comparison
SCHEMA = 1  # of the JSON of `graphcal watch`


@dataclass(frozen=True)
class Window:
    """Predictions of one stretch of time."""

    name: str
    nodes: int
    confidence: float  # mean
    prior: tuple[float, ...]  # mean probability of each class
    comparison: RowComparison  # with the rows at fitting time
    labels: int
    accuracy: float | None
    slope: Interval | None  # calibration slope with its interval, corrected
    drifting: tuple[str, ...]  # what has changed notably
    alerts: WindowEstimate | None = None  # for a calibrator of `graphcal alerts`
    estimate: WindowAccuracy | None = None  # accuracy without labels, for a calibrator with ``sets=True``

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
class MonitorReport(Summarized):
    """Windows compared with fitting time, the test of the promise, and the status."""

    windows: tuple[Window, ...]
    risk: Risk | None
    alpha: float
    positive: str = ""  # class of the alerts

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
        if self.expected:
            rows.append(("Expected", self.expected))
        newest = self.windows[-1] if self.windows else None
        if newest is not None and newest.estimate is not None:
            where = "" if len(self.windows) == 1 else f"Window {newest.name}: "
            rows += [("Accuracy", where + newest.estimate.sentence), ("Not seen", newest.estimate.unseen)]
        if self.risk is not None:
            rows.insert(2, ("Evidence", f"e-value {self.risk.evidence:.3g}; {1 / self.alpha:g} refutes the promise"))
        return rows

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
    def expected(self) -> str:
        """The alerts of the newest window in one sentence; empty without alerts."""
        newest = self.windows[-1].alerts if self.windows else None
        if newest is None:
            return ""
        count = newest.expected.count_text()
        if newest.precision is None or newest.recall is None:
            return f"Window {newest.name}: {count} rows of {self.positive}, none of them above the threshold."
        return (
            f"Window {newest.name}: {count} rows of {self.positive}. Of the {newest.sent:,} rows above the threshold "
            f"{newest.precision.text()} will be {self.positive}, which finds {newest.recall.text()}."
        )

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
        labelled = any(w.labels for w in self.windows)
        if self.risk is not None or (self.positive and labelled):
            return "Go on."
        if self.positive:
            return "Labels of a few rows above the threshold, drawn at random, would test the expected precision."
        if labelled:
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
    window: str = "auto",
    calibration: Calibration | None = None,
    out: Outputs | None = None,
) -> MonitorReport:
    """Compare predictions (N, C) as served, calibrated, with the ``reference`` of fitting time.

    ``time`` (N,) and ``window`` cut windows, see `cut_windows`. ``y`` (N,) holds labels where they have arrived, -1 elsewhere.
    The promise of ``decision`` is tested against them, else the one in the reference. ``names`` are those of the classes. With a
    ``calibration`` that was fitted with ``GraphScaling(sets=True)`` and the outputs ``out`` that it calibrated, the accuracy of
    each window is estimated without labels (`graphcal.estimate`).

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
    cuts = cut_windows(time, len(log_probs), window)
    queue = None if reference.get("alerts") is None else QueueEstimate.from_dict(reference["alerts"])
    y = torch.full((len(log_probs),), -1) if y is None else y
    level = LEVEL / len(cuts)
    degree = None if graph is None else degrees(graph)
    windows = tuple(
        measure_window(name, rows, reference, log_probs, y, level, degree, names, queue) for name, rows in cuts
    )
    if calibration is not None and out is not None:
        windows = tuple(
            replace(one, estimate=estimate(calibration, out, torch.from_numpy(rows)))
            for one, (_, rows) in zip(windows, cuts)
        )
    order = np.arange(len(log_probs)) if time is None else np.argsort(np.asarray(time), kind="stable")
    stored = reference.get("promise")
    if decision is not None:
        promise, threshold = replace(decision.promise, positive=decision.positive), decision.threshold
    elif stored is not None:
        promise, threshold = Promise(stored["max_error"], stored["certainty"]), stored["threshold"]
    else:
        promise, threshold = Promise(), None
    risk = None if threshold is None else check_risk(promise, threshold, log_probs, y, order, alpha)
    return MonitorReport(windows, risk, alpha, "" if queue is None else queue.positive)


def measure_window(
    name: str,
    rows: Array,
    reference: Mapping[str, Any],
    log_probs: Tensor,
    y: Tensor,
    level: float,
    degree: Array | None,
    names: Sequence[str] | None,
    queue: QueueEstimate | None = None,
) -> Window:
    """Compare one window with the reference; ``level`` is that of each of its tests."""
    index = torch.from_numpy(rows)
    now, labels = log_probs[index], y[index]
    probs = now.double().exp()
    values = sample_values(probs.numpy(), reference["sample"]["classes"])
    comparison = compare_with(reference, values, None if degree is None else degree[rows], names)
    labelled = (labels >= 0).numpy()
    conf = confidence(now)[0].numpy()
    right = (now.argmax(dim=1) == labels).numpy()
    slope = calibration_slope(conf[labelled], right[labelled], 1 - level) if labelled.sum() >= 30 else None
    drifting = []
    if comparison.p <= max(level, SMALLEST_P):
        drifting.append(comparison.text("the rows of the fit", "this window"))
    if slope is not None and not slope.low <= 1 <= slope.high:
        drifting.append(f"calibration slope {slope.value:.2f}")
    alerts = None
    if queue is not None:
        prob = probs[:, 1].numpy()
        alerts = queue.window(name, prob)
        drifting += precision_faults(alerts, labels[labelled & queue.sends(prob)].numpy() == 1, 1 - level)
        alerts = replace(alerts, drift="; ".join(drifting))
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
        alerts,
    )


def precision_faults(window: WindowEstimate, hits: Array, certainty: float) -> list[str]:
    """Say where the labels of rows above the threshold (n,) refute the expected precision; empty where they do not."""
    expected = window.precision
    if expected is None or expected.low is None or expected.high is None or not len(hits):
        return []
    low, high = share_interval(int(hits.sum()), len(hits), certainty)
    if low <= expected.high and high >= expected.low:
        return []
    return [f"precision {percent(hits.mean())} % in {plural(len(hits), 'labelled alert')}, expected {expected.text()}"]


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
