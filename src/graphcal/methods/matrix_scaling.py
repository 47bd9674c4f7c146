"""Matrix scaling (Guo et al. 2017, arXiv:1706.04599): z' = z A + b, with the off-diagonal penalty of Kull et al. 2019.

    minimise  NLL(z A + b) + penalty [ mean_offdiag A^2 + mean b^2 ]        from A = I, b = 0

Convex: Newton-CG. The penalty is chosen by cross-validation on the fitted nodes, because C^2 + C weights on a few hundred
nodes overfit without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, fitted_on
from graphcal.methods.card import Card
from graphcal.methods.solvers.node_order import fitting_order
from graphcal.methods.solvers.softmax import fit_softmax_cv, with_intercept
from graphcal.threads import one_thread

PENALTIES = (1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)


@dataclass(frozen=True)
class MatrixScaling:
    """An affine map of the logits, with a penalty on mixing classes that is chosen by cross-validation.

    For models that take some classes for others in a way that can be undone; it may change predictions.
    """

    penalties: tuple[float, ...] = PENALTIES
    folds: int = 5
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="Matrix scaling",
        formula="p = softmax(z A + b)",
        paper="Guo et al., ICML 2017, arXiv:1706.04599; penalty: Kull et al., NeurIPS 2019, arXiv:1910.12656",
        parameters="A, b: C^2 + C",
        cost="fit: Newton-CG along a path of penalties in every fold; apply: O(N C^2)",
        keeps_predictions=False,
        minimises_nll=True,
        departures="starts at the identity, is penalised and is solved exactly",
    )

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> AffineMap:
        """A and b of least penalised NLL on the nodes ``on``, with the penalty of least held-out NLL; ``stop`` is not used."""
        nodes = fitting_order(out, on)
        logits, y = out.logits[nodes], out.graph.y[nodes]
        generator = torch.Generator().manual_seed(self.seed)
        weight, penalty = fit_softmax_cv(with_intercept(logits), y, self.penalties, self.folds, generator)
        return AffineMap(
            matrix=weight[:-1].to(logits), shift=weight[-1].to(logits), penalty=penalty, **fitted_on(out, on)
        )


class AffineMap(Calibration):
    """Calibration fitted by `MatrixScaling`."""

    matrix: Tensor  # (C, C)
    shift: Tensor  # (C,)
    penalty: float

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        return (self.matrix.to(logits).T @ logits + self.shift.to(logits)[:, None]).log_softmax(0)
