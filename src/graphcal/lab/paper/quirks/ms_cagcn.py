"""Matrix scaling as CaGCN's code does it (BUPT-GAMMA/CaGCN, NeurIPS 2021), for reproduction only.

A and b start at all ones, where every class ties, and take 400 steps of Adam with a penalty of 0.01 on the off-diagonal of A and
of 0.2 on b. The published MS rows are from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Outputs, fitted_on
from graphcal.methods.card import Card
from graphcal.methods.matrix_scaling import AffineMap
from graphcal.methods.solvers.linear import mean_nll
from graphcal.methods.solvers.node_order import fitting_order

PENALTY = 1e-2  # on A


@dataclass(frozen=True)
class CaGCNsMS:
    """An affine map of the logits, where 400 steps of Adam from all ones lead."""

    card: ClassVar[Card] = Card(
        title="Matrix scaling, CaGCN's optimiser",
        formula="p = softmax(z A + b)",
        paper="the code of Wang et al., NeurIPS 2021, arXiv:2109.14285",
        parameters="A, b: C^2 + C",
        cost="fit: 400 steps of Adam; apply: O(N C^2)",
        keeps_predictions=False,
        departures="from matrix scaling: the start, the penalties, and a stop before the minimum",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> AffineMap:
        """A and b after 400 steps on the nodes ``on``; ``stop`` is not used."""
        nodes = fitting_order(out, on)
        matrix, shift = adam_from_ones(out.logits[nodes], out.graph.y[nodes])
        return AffineMap(matrix=matrix, shift=shift, penalty=PENALTY, **fitted_on(out, on))


def adam_from_ones(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A (C, C) and b (C,)"""
    classes = logits.shape[1]
    matrix = torch.ones(classes, classes, dtype=logits.dtype, device=logits.device, requires_grad=True)
    shift = torch.ones(classes, dtype=logits.dtype, device=logits.device, requires_grad=True)
    off = 1 - torch.eye(classes, dtype=logits.dtype, device=logits.device)
    optimiser = torch.optim.Adam([matrix, shift], lr=0.01)
    for _ in range(400):
        penalty = PENALTY * (off * matrix).square().sum() / off.sum() + 0.2 * shift.square().mean()
        optimiser.zero_grad()
        loss = mean_nll(logits @ matrix + shift, y) + penalty
        loss.backward()
        optimiser.step()
    return matrix.detach(), shift.detach()
