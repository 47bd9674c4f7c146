"""Monotone maps of the log-odds of a positive class, fitted with weights.

With u the log-odds that a model gives and q = sigmoid(u), the calibrated log-odds are

    shift        u + c                                    undoes class weights or resampling: c = -log w  (decisions.undo_weights)
    platt        a u + c                                  Platt 1999
    beta         a log q - b log(1 - q) + c               Kull et al. 2017; a, b >= 0
    quadratic    a u + b u² + c                           dropped where it is not increasing over the scores
    isotonic     isotonic regression of the label on u

Each is fitted by weighted maximum likelihood (isotonic: weighted least squares) with Platt's smoothed targets; the weights are
1 / inclusion probability, scaled to mean 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from graphcal.core import Calibration, Needs
from graphcal.graphs import Columns, GraphSums
from graphcal.methods.isotonic import PositiveCurve

Array = NDArray[Any]
CURVES = ("shift", "platt", "beta", "quadratic", "isotonic")
TERMS = {"shift": (0,), "platt": (0, 1), "beta": (0, 3, 4), "quadratic": (0, 1, 2)}  # columns of `terms_of`
RIDGE = 1e-6


class LogOddsCurve(Calibration):
    """A linear combination of 1, u, u², log q and -log(1 - q) as the log-odds of the second of two classes."""

    weights: Tensor  # (5,)
    shift: float  # added to the log-odds before

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        odds = logits[1] - logits[0] + self.shift
        terms = torch.stack([torch.ones_like(odds), odds, odds * odds, logsigmoid(odds), -logsigmoid(-odds)])
        value = (self.weights.to(terms) @ terms).clamp(-60, 60)
        return torch.stack([logsigmoid(-value), logsigmoid(value)])


class BetweenCurves(Calibration):
    """A calibration of two classes with a line before it and a curve after it: after(inner(slope u + shift)) for log-odds u."""

    slope: float
    shift: float
    inner: Calibration
    after: LogOddsCurve

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        return self.inner.needs

    def context(
        self, logits: Columns, graph: GraphSums, hidden: Columns | None = None, inputs: Columns | None = None
    ) -> Columns:
        return self.inner.context(graph.rows(lambda z: self.moved(z.T).T, logits), graph, hidden, inputs)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        return self.after.kernel(self.inner.kernel(self.moved(logits), context), context[:0])

    def moved(self, logits: Tensor) -> Tensor:
        """Logits (2, n) with the log-odds slope u + shift."""
        half = (self.slope * (logits[1] - logits[0]) + self.shift) / 2
        return torch.stack([-half, half])


def terms_of(odds: Array) -> Array:
    """(n, 5) the terms of a `LogOddsCurve`."""
    return np.column_stack([np.ones_like(odds), odds, odds**2, -np.logaddexp(0, -odds), np.logaddexp(0, odds)])


def fit_curve(
    name: str, odds: Array, positive: Array, weight: Array, span: tuple[float, float]
) -> LogOddsCurve | PositiveCurve | None:
    """Fit one of `CURVES` on log-odds (n,), labels (n,) bool and weights (n,); None where it is not increasing over ``span``."""
    weight = weight / weight.mean()
    if name == "isotonic":
        return fit_isotonic(odds, positive, weight)
    count = float(weight[positive].sum())
    target = np.where(positive, (count + 1) / (count + 2), 1 / (float(weight.sum()) - count + 2))
    columns = list(TERMS[name])
    values = logistic(odds, columns, target, weight, offset=odds if name == "shift" else None)
    if name == "beta" and (values[3:] < 0).any():
        columns = [0, 4] if values[3] < values[4] else [0, 3]
        values = logistic(odds, columns, target, weight)
    if name == "shift":
        values[1] = 1.0
    at = np.linspace(*span, 200)
    if not (np.diff(terms_of(at) @ values) > 0).all():
        return None
    return LogOddsCurve(weights=torch.from_numpy(values), shift=0.0, num_classes=2)


def logistic(odds: Array, columns: list[int], target: Array, weight: Array, offset: Array | None = None) -> Array:
    """(5,) weights of the terms ``columns`` by Newton's method on standardized terms, others zero."""
    terms = terms_of(odds)[:, columns]
    mean, spread = terms.mean(axis=0), np.maximum(terms.std(axis=0), 1e-12)
    mean[0], spread[0] = 0.0, 1.0
    design, offset = (terms - mean) / spread, np.zeros(len(odds)) if offset is None else offset

    def loss(w: Array) -> float:
        value = design @ w + offset
        return float((weight * (np.logaddexp(0, value) - target * value)).sum() + RIDGE * (w[1:] ** 2).sum() / 2)

    ridge = RIDGE * np.eye(len(columns))
    ridge[0, 0] = 0.0
    w = np.zeros(len(columns))
    for _ in range(100):
        p = 1 / (1 + np.exp(-np.clip(design @ w + offset, -500, 500)))
        gradient = design.T @ (weight * (p - target)) + ridge @ w
        hessian = (design * (weight * p * (1 - p))[:, None]).T @ design + ridge
        step, size, before = np.linalg.lstsq(hessian, gradient, rcond=None)[0], 1.0, loss(w)
        while loss(w - size * step) > before + 1e-12 and size > 1e-6:
            size /= 2
        w = w - size * step
        if np.abs(size * step).max() < 1e-9:
            break
    values = np.zeros(5)
    values[columns] = w / spread
    values[0] = w[0] - float((w[1:] / spread[1:] * mean[1:]).sum())
    return values


def fit_isotonic(odds: Array, positive: Array, weight: Array) -> PositiveCurve:
    """Weighted isotonic regression by pooling adjacent violators; equal scores are one observation."""
    x, at = np.unique(odds, return_inverse=True)
    w = np.bincount(at, weights=weight)
    mean = np.bincount(at, weights=weight * positive) / w
    blocks: list[list[float]] = []  # mean, weight, first, last
    for k in range(len(x)):
        blocks.append([float(mean[k]), float(w[k]), k, k])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            value, size, _, last = blocks.pop()
            total = blocks[-1][1] + size
            blocks[-1] = [(blocks[-1][0] * blocks[-1][1] + value * size) / total, total, blocks[-1][2], last]
    ends = np.array([[x[int(b[2])], x[int(b[3])]] for b in blocks])  # (B, 2)
    knots = 1 / (1 + np.exp(-ends.ravel()))
    values = np.repeat([b[0] for b in blocks], 2)
    return PositiveCurve(x=torch.from_numpy(knots), y=torch.from_numpy(values), num_classes=2)


def after_shift(curve: Calibration | None, shift: float) -> LogOddsCurve | PositiveCurve | BetweenCurves:
    """The map u -> curve(u + shift), with the scores as they are for no curve."""
    if isinstance(curve, BetweenCurves):
        state = {"slope": curve.slope, "inner": curve.inner, "after": curve.after, "fitted_on": curve.fitted_on}
        return BetweenCurves(shift=curve.shift + curve.slope * shift, num_classes=2, **state)
    if isinstance(curve, PositiveCurve):
        odds = torch.logit(curve.x, eps=1e-12) - shift
        return PositiveCurve(x=odds.sigmoid(), y=curve.y, num_classes=2)
    if isinstance(curve, LogOddsCurve):
        return LogOddsCurve(weights=curve.weights, shift=curve.shift + shift, num_classes=2)
    return LogOddsCurve(weights=torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0]).double(), shift=float(shift), num_classes=2)


def apply_curve(curve: Calibration | None, odds: Array) -> Array:
    """(n,) probabilities of the positive class after a curve; sigmoid(u) without one."""
    logits = torch.from_numpy(np.column_stack([np.zeros_like(odds), odds]))
    log_probs = logits.log_softmax(-1) if curve is None else curve.log_probs(logits, logits[:, :0])
    return np.asarray(log_probs[:, 1].exp().numpy())
