"""Spline calibration (Gupta et al. 2021, arXiv:2006.12800) of the top-label confidence.

Sort the fitted nodes by confidence; h(t) = mean of (correct - confidence) over the lowest share t of them. A natural cubic
spline with a few knots smooths h, and its slope is what the confidence is short of:

    conf' = conf + h'(t(conf))         the other classes share 1 - conf' in their old proportions

Predictions can change, where conf' falls below the rescaled second class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, first_largest, fitted_on, fitting_nodes
from graphcal.methods.card import Card
from graphcal.methods.isotonic import interpolate
from graphcal.threads import one_thread

EDGE = 1e-6  # conf' stays within [EDGE, 1 - EDGE]


@dataclass(frozen=True)
class Spline:
    """Smooth the cumulated gap between accuracy and confidence by a spline; its slope corrects the confidence.

    For the confidence of the predicted class alone; the other classes only share what is left.
    """

    knots: int = 7

    card: ClassVar[Card] = Card(
        title="Spline calibration",
        formula="conf' = conf + h'(t), h a natural cubic spline of cumulated (correct - conf)",
        paper="Gupta et al., Calibration of Neural Networks using Splines, ICLR 2021, arXiv:2006.12800",
        parameters="one coefficient per knot: 7",
        cost="fit: sorting and a small least-squares problem; apply: O(N C + N log n)",
        keeps_predictions=False,
        departures="least squares on the natural-spline basis (Hastie et al., ESL eq. 5.4); equal confidences share one value",
    )

    def __post_init__(self) -> None:
        if self.knots < 3:
            raise ValueError(f"knots must be at least 3; got {self.knots}")

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> ConfidenceCurve:
        """The spline of least squared error through the cumulated gaps of the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        conf = out.logits[on].double().softmax(-1).max(-1).values.cpu().numpy()
        correct = (out.pred[on] == out.graph.y[on]).double().cpu().numpy()
        x, y = recalibration_curve(conf, correct, self.knots)
        curve = torch.from_numpy(np.stack([x, y])).to(out.logits)
        return ConfidenceCurve(x=curve[0], y=curve[1], **fitted_on(out, on))


def recalibration_curve(conf: np.ndarray, correct: np.ndarray, knots: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct confidences (ascending) and what each should have been."""
    order = np.argsort(conf, kind="stable")
    conf, n = conf[order], len(conf)
    share = np.arange(1, n + 1) / n
    distinct, group = np.unique(conf, return_inverse=True)
    accuracy = np.bincount(group, correct[order]) / np.bincount(group)  # equal confidences share their accuracy
    gap = np.cumsum(accuracy[group] - conf) / n
    places = np.linspace(0, 1, min(knots, max(n - 1, 3)))
    basis, slope = natural_basis(np.append(0.0, share), places)
    weights = np.linalg.lstsq(basis, np.append(0.0, gap), rcond=None)[0]
    fitted = np.bincount(group, (slope @ weights)[1:]) / np.bincount(group)
    return distinct, np.clip(distinct + fitted, EDGE, 1 - EDGE)


def natural_basis(t: np.ndarray, knots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Natural cubic spline basis at t and its derivative, one column per knot (ESL eq. 5.4, 5.5)."""  # (n, K) each

    def cubic(k: int) -> tuple[np.ndarray, np.ndarray]:
        left, last = np.maximum(t - knots[k], 0), np.maximum(t - knots[-1], 0)
        width = knots[-1] - knots[k]
        return (left**3 - last**3) / width, 3 * (left**2 - last**2) / width

    tail = cubic(len(knots) - 2)
    parts = [(np.ones_like(t), np.zeros_like(t)), (t, np.ones_like(t))]
    parts += [(value - tail[0], slope - tail[1]) for value, slope in (cubic(k) for k in range(len(knots) - 2))]
    return np.stack([p[0] for p in parts], 1), np.stack([p[1] for p in parts], 1)


class ConfidenceCurve(Calibration):
    """Calibration fitted by `Spline`."""

    x: Tensor  # (K,) confidences seen
    y: Tensor  # (K,) what they should have been

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        log_probs, top = logits.log_softmax(0), first_largest(logits)[None]
        conf = interpolate(log_probs.gather(0, top).exp(), self.x.to(log_probs), self.y.to(log_probs))  # (1, n)
        rest = log_probs.scatter(0, top, -torch.inf).logsumexp(0)  # log(1 - conf before)
        return (log_probs - rest + torch.log1p(-conf)).scatter(0, top, conf.log()).log_softmax(0)
