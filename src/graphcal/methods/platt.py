"""Platt scaling (Platt 1999), one class against the rest, then renormalised.

    q_c = sigmoid(a_c l_c + b_c)        l_c = log p_c / (1 - p_c), the log-odds of class c under softmax(z)
    p'_c = q_c / sum_k q_k

a = 1, b = 0 gives the model's own probabilities back. Each class is a convex problem in two numbers, with Platt's smoothed
targets (N+ + 1)/(N+ + 2) and 1/(N- + 2), which also carry a class that no fitted node has. For two classes the two sigmoids are
each other's complement: Platt scaling of the positive class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from graphcal.core import Calibration, Outputs, fitted_on, fitting_nodes
from graphcal.methods.card import Card
from graphcal.methods.solvers.linear import fit_linear
from graphcal.methods.solvers.scaling import log_odds
from graphcal.threads import one_thread

FAR = math.log(2)  # between the log-odds of the mean probability and of the share of labels: worth a note
STANDARD_ERRORS = 4.0
SLOPES = (0.5, 2.0)  # of Platt scaling where a shift explains most of the error


@dataclass(frozen=True)
class Platt:
    """A sigmoid on the log-odds of each class, renormalised.

    Where classes differ in how far their probabilities are off; it may change predictions.
    """

    card: ClassVar[Card] = Card(
        title="Platt scaling (one against the rest)",
        formula="p_c ~ sigmoid(a_c log(p_c / (1 - p_c)) + b_c)",
        paper="Platt, Probabilistic Outputs for Support Vector Machines, 1999",
        parameters="a, b: 2 C",
        cost="fit: a few Newton steps of a 2 x 2 system for each class; apply: O(N C)",
        keeps_predictions=False,
        departures="the paper is about one binary score; log-odds as the score, so that a = 1, b = 0 changes nothing, and the "
        "renormalisation are the usual way to many classes",
    )

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> Sigmoids:
        """a and b of least binary cross-entropy on the nodes ``on``, each class on its own; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        odds = log_odds(out.logits[on].double())  # (n, C)
        fitted = [fit_sigmoid(odds[:, c], out.graph.y[on] == c) for c in range(out.num_classes)]
        slope, bias = torch.stack(fitted, -1).to(out.logits)
        return Sigmoids(slope=slope, bias=bias, **fitted_on(out, on))


def fit_sigmoid(odds: Tensor, positive: Tensor) -> Tensor:
    """(a, b): sigmoid(u) is softmax(0, u), so this is a linear fit with two classes."""  # (2,)
    count = positive.sum().double()
    target = torch.where(positive, (count + 1) / (count + 2), 1 / (len(odds) - count + 2))  # (n,)
    terms = torch.stack([odds, torch.ones_like(odds)], -1)[:, None]  # (n, 1, 2)
    return fit_linear(
        base=torch.zeros(len(odds), 2, dtype=torch.double, device=odds.device),
        terms=torch.cat([torch.zeros_like(terms), terms], 1),
        y=torch.stack([1 - target, target], -1),
        start=torch.tensor([1.0, 0.0]),
    )


def is_far(probs: Tensor, positive: Tensor) -> bool:
    """Return whether the mean of probabilities (n,) is far from the share of positive rows (n,), beyond chance."""
    mean, share = float(probs.mean()), float(positive.double().mean())
    if not 0 < share < 1 or not 0 < mean < 1:
        return False
    error = math.sqrt(max(mean * (1 - mean), share * (1 - share)) / len(probs))
    distance = abs(math.log(mean / (1 - mean)) - math.log(share / (1 - share)))
    return distance > FAR and abs(mean - share) > STANDARD_ERRORS * error


def shift_of(logits: Tensor, positive: Tensor) -> tuple[float, float] | None:
    """Mean probability of the positive class and the class weight that explains it; None where no shift of the log-odds does."""
    probs = logits.double().softmax(-1)[:, 1]
    if not is_far(probs, positive):
        return None
    slope, bias = fit_sigmoid(log_odds(logits.double())[:, 1], positive).tolist()
    if not SLOPES[0] <= slope <= SLOPES[1] or abs(bias / slope) <= FAR:  # a temperature explains the distance
        return None
    return float(probs.mean()), math.exp(-bias / slope)


def weight_note(logits: Tensor, y: Tensor) -> str:
    """Name the class weight that a model seems to be trained with, from its logits (n, C); empty for none or C > 2."""
    if logits.shape[1] != 2 or not (shift := shift_of(logits, y == 1)):
        return ""
    (mean, weight), rate = shift, float((y == 1).double().mean())
    return (
        f"; mean probability of class 1 {100 * mean:.1f} %, label rate {100 * rate:.1f} %: as if trained with a "
        f"class weight of {weight:.2g}, which graphcal.decisions.undo_weights(log_probs, [1, {weight:.2g}]) undoes"
    )


class Sigmoids(Calibration):
    """Calibration fitted by `Platt`."""

    slope: Tensor  # (C,) a
    bias: Tensor  # (C,) b

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        odds = log_odds(logits.T).T
        slope, bias = self.slope.to(odds)[:, None], self.bias.to(odds)[:, None]
        return logsigmoid(slope * odds + bias).log_softmax(0)
