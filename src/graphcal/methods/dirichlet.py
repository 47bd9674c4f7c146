"""Dirichlet calibration (Kull et al. 2019, arXiv:1910.12656): p' = softmax(A log p + b).

    minimise  NLL + penalty [ mean_offdiag A^2 + mean b^2 ]       (ODIR)        from A = I, b = 0

Matrix scaling on log-probabilities instead of logits. Convex: Newton-CG, the penalty by cross-validation on the fitted nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, fitted_on
from graphcal.methods.card import Card
from graphcal.methods.matrix_scaling import PENALTIES
from graphcal.methods.solvers.node_order import fitting_order
from graphcal.methods.solvers.softmax import fit_softmax_cv, with_intercept
from graphcal.threads import one_thread


@dataclass(frozen=True)
class Dirichlet:
    """An affine map of the log-probabilities: the right family when each class's predictions are Dirichlet.

    As `MatrixScaling`, without its dependence on what is common to all logits of a node; it may change predictions.
    """

    penalties: tuple[float, ...] = PENALTIES
    folds: int = 5
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="Dirichlet calibration",
        formula="p' = softmax(A log p + b)",
        paper="Kull et al., Beyond temperature scaling, NeurIPS 2019, arXiv:1910.12656",
        parameters="A, b: C^2 + C",
        cost="fit: Newton-CG along a path of penalties in every fold; apply: O(N C^2)",
        keeps_predictions=False,
        minimises_nll=True,
        departures="starts at the identity, which changes nothing, and the penalty comes from cross-validation; the GATS code "
        "starts at a random matrix, with a penalty by hand for each dataset",
    )

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> LogAffineMap:
        """A and b of least penalised NLL on the nodes ``on``, with the penalty of least held-out NLL; ``stop`` is not used."""
        nodes = fitting_order(out, on)
        log_probs, y = out.logits[nodes].log_softmax(-1), out.graph.y[nodes]
        generator = torch.Generator().manual_seed(self.seed)
        weight, penalty = fit_softmax_cv(with_intercept(log_probs), y, self.penalties, self.folds, generator)
        matrix, shift = weight[:-1].to(log_probs), weight[-1].to(log_probs)
        return LogAffineMap(matrix=matrix, shift=shift, penalty=penalty, **fitted_on(out, on))


class LogAffineMap(Calibration):
    """Calibration fitted by `Dirichlet`."""

    matrix: Tensor  # (C, C)
    shift: Tensor  # (C,)
    penalty: float

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        return (self.matrix.to(logits).T @ logits.log_softmax(0) + self.shift.to(logits)[:, None]).log_softmax(0)
