"""Matrix scaling (Guo et al. 2017, arXiv:1706.04599): z' = z A + b, with the off-diagonal penalty of Kull et al. 2019.

    minimise  NLL(z A + b) + penalty [ mean_offdiag A^2 + mean b^2 ]        from A = I, b = 0

Convex: Newton-CG. The penalty is chosen by cross-validation on the fitted nodes, because C^2 + C weights on a few hundred
nodes overfit without it.

Departures: CaGCN starts A and b at all ones (all classes tie) and takes 400 steps of Adam with a penalty of 0.01 on A and
0.2 on b; the published MS rows are from there. `solver="cagcn"` is that loop, for reproduction only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs
from graphcal.engine.adam import fitting_order
from graphcal.engine.linear import nll_of
from graphcal.engine.softmax import fit_with_chosen_penalty, with_intercept
from graphcal.methods.card import Card

PENALTIES = (1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)
SOLVERS = ("exact", "cagcn")


@dataclass(frozen=True)
class MatrixScaling:
    """An affine map of the logits, its off-diagonal part kept small."""

    penalties: tuple[float, ...] = PENALTIES
    folds: int = 5
    solver: str = "exact"
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="Matrix scaling",
        idea="An affine map of the logits, with a penalty on mixing classes that is chosen by cross-validation.",
        formula="p = softmax(z A + b)",
        paper="Guo et al., ICML 2017, arXiv:1706.04599; penalty: Kull et al., NeurIPS 2019, arXiv:1910.12656",
        parameters="A, b: C^2 + C",
        cost="fit: folds x penalties Newton-CG solves; apply: O(N C^2)",
        keeps_predictions=False,
        minimises_nll=True,
        departures="starts at the identity and is solved exactly; solver='cagcn' is CaGCN's Adam from all ones",
    )

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(SOLVERS)}; got {self.solver!r}")

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> AffineMap:
        nodes = fitting_order(out, on)
        logits, y = out.logits[nodes], out.graph.y[nodes]
        if self.solver == "cagcn":
            matrix, shift = adam_from_ones(logits, y)
            return AffineMap(matrix=matrix, shift=shift, penalty=1e-2)
        generator = torch.Generator().manual_seed(self.seed)
        weight, penalty = fit_with_chosen_penalty(with_intercept(logits), y, self.penalties, self.folds, generator)
        return AffineMap(matrix=weight[:-1].to(logits), shift=weight[-1].to(logits), penalty=penalty)


def adam_from_ones(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A, b as CaGCN's loop leaves them: all ones at the start, 400 steps of Adam, penalties 0.01 and 0.2."""
    classes = logits.shape[1]
    matrix = torch.ones(classes, classes, dtype=logits.dtype, device=logits.device, requires_grad=True)
    shift = torch.ones(classes, dtype=logits.dtype, device=logits.device, requires_grad=True)
    off = 1 - torch.eye(classes, dtype=logits.dtype, device=logits.device)
    optimiser = torch.optim.Adam([matrix, shift], lr=0.01)
    for _ in range(400):
        penalty = 1e-2 * (off * matrix).square().sum() / off.sum() + 0.2 * shift.square().mean()
        optimiser.zero_grad()
        (nll_of(logits @ matrix + shift, y) + penalty).backward()
        optimiser.step()
    return matrix.detach(), shift.detach()


class AffineMap(Calibration):
    matrix: Tensor  # (C, C)
    shift: Tensor  # (C,)
    penalty: float

    def forward(self, out: Outputs) -> Tensor:
        return (out.logits @ self.matrix.to(out.logits) + self.shift.to(out.logits)).log_softmax(-1)
