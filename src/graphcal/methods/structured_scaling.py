"""Structured matrix scaling, SMS (Berta, Holzmüller, Jordan and Bach, AISTATS 2026): z' = (I + D + M) x + b after a temperature.

    x = log [ (1 - 1/(n+1)) softmax(z / T) + 1 / ((n+1) C) ]               T of least NLL on the n fitted nodes

    minimise  NLL(x + (D + M) x + b) + C/n (|b|^2 + |D|^2) + C (C-1)/n |M|^2

with D diagonal and M off the diagonal. The strengths grow with the number of parameters of each part and shrink with n; nothing
is searched. Convex: Newton-CG, where the authors' package probmetrics uses BFGS (the tests hold the two together).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, fitted_on
from graphcal.methods.card import Card
from graphcal.methods.solvers.node_order import fitting_order
from graphcal.methods.solvers.softmax import fit_softmax, identity_start, with_intercept
from graphcal.methods.temperature import fit_scale
from graphcal.threads import one_thread


@dataclass(frozen=True)
class StructuredMatrixScaling:
    """A temperature, then an affine map of the log-probabilities whose parts are penalised by their size.

    As `MatrixScaling`, with penalties that are known beforehand instead of searched for; it may change predictions.

    >>> import graphcal
    >>> from graphcal.methods import StructuredMatrixScaling
    >>> out = graphcal.example()
    >>> data = out.graph
    >>> StructuredMatrixScaling().fit(out, on=data.val_mask).matrix.shape
    torch.Size([5, 5])
    """

    card: ClassVar[Card] = Card(
        title="Structured matrix scaling (SMS)",
        formula="p = softmax((I + D + M) x + b), x = log softmax(z / T) mixed with 1 / (n + 1) of the uniform distribution",
        paper="Berta et al., Structured matrix scaling for multi-class calibration, AISTATS 2026",
        parameters="T, D, M, b: C^2 + C + 1",
        cost="fit: one Newton-CG solve on the fitted nodes; apply: O(N C^2)",
        keeps_predictions=False,
        minimises_nll=True,
        departures="the minimum itself, where probmetrics stops BFGS",
    )

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> StructuredMap:
        """T, then D, M and b of least penalised NLL on the nodes ``on``; ``stop`` is not used."""
        nodes = fitting_order(out, on)
        logits, y, C = out.logits[nodes].double(), out.graph.y[nodes], out.num_classes
        scale = fit_scale(logits, y)
        share = 1 / (len(nodes) + 1)
        x = with_intercept(_smoothed(logits.T, scale, share).T)
        ridge = torch.full((C + 1, C), C * (C - 1.0), dtype=torch.double, device=x.device)  # M, then D and b
        ridge[range(C), range(C)] = C
        ridge[-1] = C
        weight = fit_softmax(x, y, identity_start(C).to(x.device), 2 * ridge / len(nodes), precision=1e-9)
        matrix, shift = weight[:-1].to(out.logits), weight[-1].to(out.logits)
        return StructuredMap(scale=scale.to(out.logits), matrix=matrix, shift=shift, share=share, **fitted_on(out, on))


class StructuredMap(Calibration):
    """Calibration fitted by `StructuredMatrixScaling`."""

    scale: Tensor  # (1,) 1 / T
    matrix: Tensor  # (C, C)
    shift: Tensor  # (C,)
    share: float  # of the uniform distribution

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        x = _smoothed(logits, self.scale.to(logits), self.share)
        return (self.matrix.to(x).T @ x + self.shift.to(x)[:, None]).log_softmax(0)


def _smoothed(logits: Tensor, scale: Tensor, share: float) -> Tensor:
    """log of softmax(s z) mixed with a share of the uniform distribution."""  # (C, n)
    log_probs = (scale * logits).log_softmax(0)
    uniform = torch.full_like(log_probs, math.log(share / len(logits)))
    return torch.logaddexp(log_probs + math.log1p(-share), uniform)
