"""Isotonic regression: a monotone map from predicted probability to observed frequency.

    p'_1 = f(p_1)                    two classes: isotonic regression of the positive class, the second one
    p'_c ~ f(p_c) + e p_c            more classes (IRM; Zhang et al. 2020, arXiv:2003.07329)
    p'_c ~ f_c(p_c) + e p_c          more classes, one against the rest (Zadrozny & Elkan 2002)

IRM puts all class probabilities of all fitted nodes and their one-hot labels into one regression, so the order of the classes is
kept. `KeptIsotonic` uses it for two classes too. The small multiple of p breaks the ties of the steps and keeps every probability
positive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphcal.core import Calibration, Outputs, fitted_on, fitting_nodes
from graphcal.methods.card import Card
from graphcal.methods.solvers.scaling import keep_top
from graphcal.threads import one_thread

TIE_BREAK = 1e-3
TIE_BREAK_OF_TWO = 1e-7  # two classes: what scikit-learn gives, to 1e-7


@dataclass(frozen=True)
class Isotonic:
    """A monotone step function from predicted probability to observed frequency.

    Where the error is no matter of a temperature and there are a thousand validation nodes or more. Two classes: isotonic
    regression of the positive class, as in scikit-learn; predictions may change. More classes: one map for all of them, which
    keeps predictions; ``one_vs_rest=True`` fits each class alone and may change them.
    """

    one_vs_rest: bool = False

    card: ClassVar[Card] = Card(
        title="Isotonic regression",
        formula="two classes: p'_1 = f(p_1), f non-decreasing; more: p'_c ~ f(p_c) + e p_c",
        paper="Zhang et al., ICML 2020, arXiv:2003.07329 (multi-class); Zadrozny & Elkan, KDD 2002 (two classes, one "
        "against the rest)",
        parameters="the steps of f: at most one per fitted probability",
        cost="fit: sorting n C numbers; apply: O(N C log steps)",
        keeps_predictions=False,
        departures="with more than two classes predictions are kept, unless one_vs_rest is set; e = 1e-3, where the reference "
        "has 1e-9, which single precision rounds away (two classes: 1e-7); values are normalised before any score is taken (the "
        "GATS code logs unnormalised ones)",
    )

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> MonotoneCurves | PositiveCurve:
        """The curve of least squared error on the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        if out.num_classes == 2:
            return fit_positive_curve(out, on)
        return fit_curves(out, on, self.one_vs_rest)


@dataclass(frozen=True)
class KeptIsotonic:
    """Isotonic regression shared by all classes, for two classes too: it never changes a prediction.

    With two classes, no probability crosses 50 %: where class weights or sampling moved all probabilities, take ``isotonic``.
    """

    card: ClassVar[Card] = Card(
        title="Isotonic regression, predictions kept",
        formula="p'_c ~ f(p_c) + e p_c, f non-decreasing",
        paper="Zhang et al., ICML 2020, arXiv:2003.07329",
        parameters="the steps of f: at most one per fitted probability",
        cost="fit: sorting n C numbers; apply: O(N C log steps)",
        keeps_predictions=True,
        departures="e = 1e-3, where the reference has 1e-9, which single precision rounds away; values are normalised before any "
        "score is taken (the GATS code logs unnormalised ones)",
    )

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> MonotoneCurves:
        """The curve of least squared error on the nodes ``on``; ``stop`` is not used."""
        return fit_curves(out, fitting_nodes(out, on), one_vs_rest=False)


def fit_positive_curve(out: Outputs, on: Tensor) -> PositiveCurve:
    """Isotonic regression of the second of two classes on the nodes ``on`` (N,) bool."""
    curve = isotonic(out.logits[on].double().softmax(-1)[:, 1], out.graph.y[on].double())
    x, y = (torch.from_numpy(knots).to(out.logits.device) for knots in curve)
    return PositiveCurve(x=x, y=y, **fitted_on(out, on))


def fit_curves(out: Outputs, on: Tensor, one_vs_rest: bool) -> MonotoneCurves:
    """One curve for all classes, or one for each, on the nodes ``on`` (N,) bool."""
    probs = out.logits[on].double().softmax(-1)  # (n, C)
    truth = one_hot(out.graph.y[on], out.num_classes).double()
    if one_vs_rest:
        curves = [isotonic(probs[:, c], truth[:, c]) for c in range(out.num_classes)]
    else:
        curves = [isotonic(probs.flatten(), truth.flatten())]
    longest = max(len(x) for x, _ in curves)
    padded = [np.stack([np.pad(v, (0, longest - len(v)), mode="edge") for v in curve]) for curve in curves]
    knots = torch.from_numpy(np.stack(padded)).to(out.logits)  # (1 or C, 2, K)
    return MonotoneCurves(x=knots[:, 0], y=knots[:, 1], one_vs_rest=one_vs_rest, **fitted_on(out, on))


def isotonic(probs: Tensor, truth: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The knots of the monotone piecewise linear curve that scikit-learn fits."""
    from sklearn.isotonic import IsotonicRegression

    curve = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    curve.fit(probs.cpu().numpy(), truth.cpu().numpy())
    return np.asarray(curve.X_thresholds_), np.asarray(curve.y_thresholds_)


def interpolate(x: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Piecewise linear through (knots, values), constant outside them; repeated knots are allowed."""
    right = torch.searchsorted(knots, x.contiguous()).clamp(1, max(len(knots) - 1, 1))
    right = right.clamp(max=len(knots) - 1)
    left = (right - 1).clamp(min=0)
    width = knots[right] - knots[left]
    share = torch.where(width > 0, (x - knots[left]) / width.clamp(min=torch.finfo(x.dtype).tiny), 1.0)
    return torch.lerp(values[left], values[right], share.clamp(0, 1))


class PositiveCurve(Calibration):
    """Calibration fitted by `Isotonic` for two classes: a curve for the probability of the second one."""

    x: Tensor  # (K,) double: a step may be narrower than single precision
    y: Tensor  # (K,)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        log_probs = logits.double().log_softmax(0)  # (2, n)
        x, y = self.x.to(log_probs), self.y.to(log_probs)
        positive = interpolate(log_probs[1].exp(), x, y)
        return tie_broken(torch.stack([1 - positive, positive]), log_probs, TIE_BREAK_OF_TWO).to(logits)


class MonotoneCurves(Calibration):
    """Calibration fitted by `Isotonic` for more than two classes, and by `KeptIsotonic` for any number."""

    x: Tensor  # (1, K) or (C, K)
    y: Tensor  # the same
    one_vs_rest: bool

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        log_probs = logits.log_softmax(0)
        probs = log_probs.exp()
        x, y = self.x.to(probs), self.y.to(probs)
        if self.one_vs_rest:
            steps = torch.stack([interpolate(p, x[c], y[c]) for c, p in enumerate(probs)])
        else:
            steps = interpolate(probs, x[0], y[0])
        mixed = tie_broken(steps, log_probs, TIE_BREAK)
        return mixed if self.one_vs_rest else keep_top(mixed, logits)


def tie_broken(steps: Tensor, log_probs: Tensor, share: float) -> Tensor:
    """log of (steps + share p), normalised; in logs, so that a probability that rounds to zero keeps its order."""  # (C, n)
    return torch.logaddexp(steps.log(), log_probs + math.log(share)).log_softmax(0)
