"""Platt scaling (Platt 1999), one class against the rest, then renormalised.

    q_c = sigmoid(a_c l_c + b_c)        l_c = log p_c / (1 - p_c), the log-odds of class c under softmax(z)
    p'_c = q_c / sum_k q_k

a = 1, b = 0 gives the model's own probabilities back. Each class is a convex problem in two numbers, with Platt's smoothed
targets (N+ + 1)/(N+ + 2) and 1/(N- + 2), which also carry a class that no fitted node has. For two classes the two sigmoids are
each other's complement: Platt scaling of the positive class.
"""

from __future__ import annotations

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


class Sigmoids(Calibration):
    """Calibration fitted by `Platt`."""

    slope: Tensor  # (C,) a
    bias: Tensor  # (C,) b

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        odds = log_odds(logits.T).T
        slope, bias = self.slope.to(odds)[:, None], self.bias.to(odds)[:, None]
        return logsigmoid(slope * odds + bias).log_softmax(0)
