"""Vector scaling (Guo et al. 2017, arXiv:1706.04599): z' = a z + b, one scale and one bias for each class.

Validation NLL is convex in (a, b): Newton's method. A ridge of a tenth of one node's loss towards a = 1, b = 0
keeps the bias of a class that no fitted node has from running to minus infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from graphcal.core import Calibration, Outputs, fitted_on, fitting_nodes
from graphcal.methods.card import Card
from graphcal.methods.solvers.softmax import fit_diagonal
from graphcal.threads import one_thread


@dataclass(frozen=True)
class VectorScaling:
    """Scale and shift each class's logit.

    Where confidence is off by class, for example after training on classes of very different size; it may change predictions.
    ``bias=False`` fits the scales alone. GATS's vector scaling is that by accident: its optimiser is handed the scale and not the
    bias, and a bias of all ones cancels in the softmax.
    """

    bias: bool = True

    card: ClassVar[Card] = Card(
        title="Vector scaling",
        formula="p = softmax(a z + b), a and b with one entry per class",
        paper="Guo et al., On Calibration of Modern Neural Networks, ICML 2017, arXiv:1706.04599",
        parameters="a, b: 2 C (bias=False: C)",
        cost="fit: Newton's method on the fitted nodes, O(n C^2) a step; apply: O(N C)",
        keeps_predictions=False,
        minimises_nll=True,
        departures="fitted exactly, with a faint ridge towards a = 1, b = 0",
    )

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> ScaleAndShift:
        """a and b of least NLL on the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        ridge = 0.1 / int(on.sum())
        scale, shift = fit_diagonal(out.logits[on], out.graph.y[on], ridge, self.bias).to(out.logits)
        return ScaleAndShift(scale=scale, shift=shift, **fitted_on(out, on))


class ScaleAndShift(Calibration):
    """Calibration fitted by `VectorScaling`."""

    scale: Tensor  # (C,)
    shift: Tensor  # (C,)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        scale, shift = self.scale.to(logits)[:, None], self.shift.to(logits)[:, None]
        return (scale * logits + shift).log_softmax(0)
