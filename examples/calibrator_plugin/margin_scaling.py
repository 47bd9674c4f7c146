"""Margin scaling: a temperature that depends on how clear a prediction is.

    z'_n = (s_0 + s_1 m_n) z_n        m_n = p_1 - p_2, the lead of the most probable class

NLL is convex in (s_0, s_1). The scale of every node is kept positive, so predictions do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, fitted_on, fitting_nodes
from graphcal.methods import Card
from graphcal.methods.solvers.linear import fit_linear
from graphcal.methods.solvers.scaling import scaled_columns

SMALLEST_SCALE = 1e-3


@dataclass(frozen=True)
class MarginScaling:
    """A temperature that depends on how clear a prediction is."""

    card: ClassVar[Card] = Card(
        title="Margin scaling (example plug-in)",
        formula="z' = (s_0 + s_1 (p_1 - p_2)) z",
        paper="an example of this library",
        parameters="s_0, s_1: 2",
        cost="fit: a few Newton steps; apply: O(N C)",
        keeps_predictions=True,
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> MarginScale:
        """s_0 and s_1 of least NLL on the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        z = out.logits[on]
        terms = torch.stack([z, margin(z)[:, None] * z], -1)  # (n, C, 2)
        theta = fit_linear(torch.zeros_like(z), terms, out.graph.y[on], ridge=1e-4, start=torch.tensor([1.0, 0.0]))
        return MarginScale(theta=theta.to(out.logits), **fitted_on(out, on))


def margin(logits: Tensor) -> Tensor:
    """p_1 - p_2"""  # (N,)
    first, second = logits.softmax(-1).topk(2, -1).values.unbind(-1)
    return first - second


class MarginScale(Calibration):
    theta: Tensor  # (2,)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        theta = self.theta.to(logits)
        return scaled_columns(logits, (theta[0] + theta[1] * margin(logits.T)).clamp(min=SMALLEST_SCALE))
