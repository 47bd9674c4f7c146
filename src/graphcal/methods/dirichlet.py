"""Dirichlet calibration (Kull et al. 2019, arXiv:1910.12656): p' = softmax(A log p + b).

    minimise  NLL + penalty [ mean_offdiag A^2 + mean b^2 ]       (ODIR)        from A = I, b = 0

Matrix scaling on log-probabilities instead of logits. Convex: Newton-CG, the penalty by cross-validation on the fitted nodes.

Departures: the GATS code starts A at PyTorch's random Linear initialisation, with a penalty by hand for each dataset; the
identity is the start that changes nothing, and cross-validation needs no table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs
from graphcal.engine.adam import fitting_order
from graphcal.engine.softmax import fit_with_chosen_penalty, with_intercept
from graphcal.methods.card import Card
from graphcal.methods.matrix_scaling import PENALTIES


@dataclass(frozen=True)
class Dirichlet:
    """An affine map of the log-probabilities, its off-diagonal part kept small."""

    penalties: tuple[float, ...] = PENALTIES
    folds: int = 5
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="Dirichlet calibration",
        idea="An affine map of the log-probabilities: the right family when each class's predictions are Dirichlet.",
        formula="p' = softmax(A log p + b)",
        paper="Kull et al., Beyond temperature scaling, NeurIPS 2019, arXiv:1910.12656",
        parameters="A, b: C^2 + C",
        cost="fit: folds x penalties Newton-CG solves; apply: O(N C^2)",
        keeps_predictions=False,
        minimises_nll=True,
        departures="starts at the identity; the penalty comes from cross-validation, not from a table",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> LogAffineMap:
        nodes = fitting_order(out, on)
        log_probs, y = out.logits[nodes].log_softmax(-1), out.graph.y[nodes]
        generator = torch.Generator().manual_seed(self.seed)
        weight, penalty = fit_with_chosen_penalty(with_intercept(log_probs), y, self.penalties, self.folds, generator)
        return LogAffineMap(matrix=weight[:-1].to(log_probs), shift=weight[-1].to(log_probs), penalty=penalty)


class LogAffineMap(Calibration):
    matrix: Tensor  # (C, C)
    shift: Tensor  # (C,)
    penalty: float

    def forward(self, out: Outputs) -> Tensor:
        log_probs = out.logits.log_softmax(-1)
        return (log_probs @ self.matrix.to(log_probs) + self.shift.to(log_probs)).log_softmax(-1)
