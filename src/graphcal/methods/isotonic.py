"""Isotonic regression: a monotone step from probability to frequency.

Multi-class (IRM; Zhang et al. 2020, arXiv:2003.07329): all class probabilities of all fitted nodes and their one-hot labels go
into one isotonic regression f, so the order of the classes is kept;
One against the rest (Zadrozny & Elkan 2002): a regression f_c for each class.

    p'_c ~ f(p_c) + e p_c        (IRM)            p'_c ~ f_c(p_c) + e p_c        (one against the rest)

The small multiple of p breaks the ties of the steps and keeps every probability positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphcal.core import Calibration, Outputs, fitted_on, fitting_nodes
from graphcal.engine.scaling import with_predictions
from graphcal.methods.card import Card

TIE_BREAK = 1e-3


@dataclass(frozen=True)
class Isotonic:
    """A monotone step function from predicted probability to observed frequency, shared by all classes.

    Where the error is no matter of a temperature and there are a thousand validation nodes or more. The shared map keeps
    predictions; ``one_vs_rest=True`` fits each class alone and may change them.
    """

    one_vs_rest: bool = False

    card: ClassVar[Card] = Card(
        title="Isotonic regression",
        formula="p'_c ~ f(p_c) + e p_c, f non-decreasing",
        paper="Zhang et al., ICML 2020, arXiv:2003.07329 (multi-class); Zadrozny & Elkan, KDD 2002 (one against the rest)",
        parameters="the steps of f: at most one per fitted probability",
        cost="fit: sorting n C numbers; apply: O(N C log steps)",
        keeps_predictions=True,
        departures="e = 1e-3, where the reference has 1e-9, which single precision rounds away; values are normalised before any "
        "score is taken (the GATS code logs unnormalised ones)",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> MonotoneCurves:
        """The curve of least squared error on the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        probs = out.logits[on].double().softmax(-1)  # (n, C)
        truth = one_hot(out.graph.y[on], out.num_classes).double()
        if self.one_vs_rest:
            curves = [isotonic(probs[:, c], truth[:, c]) for c in range(out.num_classes)]
        else:
            curves = [isotonic(probs.flatten(), truth.flatten())]
        longest = max(len(x) for x, _ in curves)
        padded = [np.stack([np.pad(v, (0, longest - len(v)), mode="edge") for v in curve]) for curve in curves]
        knots = torch.from_numpy(np.stack(padded)).to(out.logits)  # (1 or C, 2, K)
        return MonotoneCurves(x=knots[:, 0], y=knots[:, 1], one_vs_rest=self.one_vs_rest, **fitted_on(out, on))


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


class MonotoneCurves(Calibration):
    """What `Isotonic` fits."""

    x: Tensor  # (1, K) or (C, K)
    y: Tensor  # the same
    one_vs_rest: bool

    def from_context(self, logits: Tensor, context: Tensor) -> Tensor:
        log_probs = logits.log_softmax(-1)
        probs = log_probs.exp()
        x, y = self.x.to(probs), self.y.to(probs)
        if self.one_vs_rest:
            steps = torch.stack([interpolate(p, x[c], y[c]) for c, p in enumerate(probs.T)], -1)
        else:
            steps = interpolate(probs, x[0], y[0])
        # in logs, so that a probability that rounds to zero keeps its place behind the others
        mixed = torch.logaddexp(steps.log(), log_probs + float(np.log(TIE_BREAK))).log_softmax(-1)
        return mixed if self.one_vs_rest else with_predictions(mixed, logits.argmax(-1))
