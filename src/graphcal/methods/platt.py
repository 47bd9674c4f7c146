"""Platt scaling (Platt 1999), one class against the rest, then renormalised.

    q_c = sigmoid(a_c l_c + b_c)        l_c = log p_c / (1 - p_c), the log-odds of class c under softmax(z)
    p'_c = q_c / sum_k q_k

a = 1, b = 0 gives the model's own probabilities back. Each class is a convex problem in two numbers, solved by Newton's
method for all classes at once, with Platt's smoothed targets (N+ + 1)/(N+ + 2) and 1/(N- + 2), which also carry a class that
no fitted node has.

Departures: the paper is about one binary score; log-odds as the score and the renormalisation are the usual way to many classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid, one_hot

from graphcal.core import Calibration, Outputs, fitting_nodes
from graphcal.engine.scaling import log_odds
from graphcal.methods.card import Card


@dataclass(frozen=True)
class Platt:
    """A sigmoid for each class against the rest."""

    card: ClassVar[Card] = Card(
        title="Platt scaling (one against the rest)",
        idea="A sigmoid on the log-odds of each class, renormalised.",
        formula="p_c ~ sigmoid(a_c log(p_c / (1 - p_c)) + b_c)",
        paper="Platt, Probabilistic Outputs for Support Vector Machines, 1999",
        parameters="a, b: 2 C",
        cost="fit: a few Newton steps of 2 x 2 systems; apply: O(N C)",
        keeps_predictions=False,
        departures="log-odds of the softmax as the score, so that a = 1, b = 0 changes nothing",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> Sigmoids:
        on = fitting_nodes(out, on)
        odds = log_odds(out.logits[on].double())  # (n, C)
        slope, bias = fit_sigmoids(odds, one_hot(out.graph.y[on], out.num_classes).double())
        return Sigmoids(slope=slope.to(out.logits), bias=bias.to(out.logits))


def fit_sigmoids(odds: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """a, b (C,) of smallest binary cross-entropy with Platt's targets, each class on its own."""
    positive, n = truth.sum(0), len(truth)  # (C,)
    target = torch.where(truth > 0, (positive + 1) / (positive + 2), 1 / (n - positive + 2))  # (n, C)
    spread = odds.square().mean(0).sqrt().clamp(min=1e-12)
    columns = torch.stack([odds / spread, torch.ones_like(odds)], -1)  # (n, C, 2)
    theta = torch.stack([spread, torch.zeros_like(spread)], -1)  # (C, 2): a = 1 in the scaled column
    eye = 1e-10 * torch.eye(2, dtype=torch.double, device=odds.device)

    def loss(t: Tensor) -> Tensor:  # (C,)
        return binary_cross_entropy_with_logits((columns * t).sum(-1), target, reduction="none").mean(0)

    value = loss(theta)
    for _ in range(100):
        prob = (columns * theta).sum(-1).sigmoid()  # (n, C)
        gradient = torch.einsum("nc,nck->ck", prob - target, columns) / n
        hessian = torch.einsum("nc,nck,ncl->ckl", prob * (1 - prob), columns, columns) / n + eye
        step = torch.linalg.solve(hessian, gradient)
        size = torch.ones_like(value)
        for _ in range(40):  # halve the step of the classes that would get worse
            worse = loss(theta - size[:, None] * step) > value
            if not worse.any():
                break
            size = torch.where(worse, size / 2, size)
        moved = theta - torch.where(worse, 0.0, size)[:, None] * step
        new = loss(moved)
        gain = float((value - new).max())
        theta, value = moved, new
        if gain < 1e-15:
            break
    return theta[:, 0] / spread, theta[:, 1]


class Sigmoids(Calibration):
    slope: Tensor  # (C,)
    bias: Tensor  # (C,)

    def forward(self, out: Outputs) -> Tensor:
        odds = log_odds(out.logits)
        return logsigmoid(self.slope.to(odds) * odds + self.bias.to(odds)).log_softmax(-1)
