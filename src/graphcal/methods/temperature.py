"""Temperature scaling (Guo et al. 2017, arXiv:1706.04599): z' = z / T with one T for all nodes.

Validation NLL is convex in s = 1/T, so T is found by Newton's method to machine precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, fitted_on, fitting_nodes
from graphcal.methods.card import Card
from graphcal.methods.solvers.linear import fit_linear
from graphcal.methods.solvers.scaling import scaled_columns
from graphcal.threads import one_thread

SMALLEST_SCALE = 1e-3  # T <= 1000: a model whose logits carry no information gets (almost) uniform confidence
LARGE_LOGITS = 100.0  # root mean square of centred logits from which the smallest scale falls in proportion


@dataclass(frozen=True)
class TemperatureScaling:
    """Divide all logits by one temperature.

    The baseline to beat. It reads logits only and cannot overfit. It corrects the mean confidence; differences between groups of
    nodes remain. It has no parameters.

    >>> import graphcal
    >>> out = graphcal.example()
    >>> data = out.graph
    >>> graphcal.TemperatureScaling().fit(out, on=data.val_mask).temperature < 1  # the model was under-confident
    True
    """

    card: ClassVar[Card] = Card(
        title="Temperature scaling",
        formula="p = softmax(z / T)",
        paper="Guo et al., On Calibration of Modern Neural Networks, ICML 2017, arXiv:1706.04599",
        parameters="T: 1",
        cost="fit: a few Newton steps on the fitted nodes; apply: O(N C)",
        keeps_predictions=True,
        minimises_nll=True,
        departures="the minimum itself, where Guo's code and most copies take a few steps of LBFGS or Adam",
    )

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> Temperature:
        """The temperature of least NLL on the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        scale = fit_scale(out.logits[on], out.graph.y[on])
        return Temperature(scale=scale.to(out.logits.dtype), **fitted_on(out, on))


def fit_scale(logits: Tensor, y: Tensor) -> Tensor:
    """s = 1/T (1,) of least NLL."""
    scale = fit_linear(torch.zeros_like(logits), logits[:, :, None], y, start=torch.ones(1))
    size = float((logits - logits.mean(1, keepdim=True)).square().mean().sqrt())
    return scale.clamp(min=SMALLEST_SCALE / max(1.0, size / LARGE_LOGITS))


class Temperature(Calibration):
    """Calibration fitted by `TemperatureScaling`."""

    scale: Tensor  # (1,) s = 1/T

    @property
    def temperature(self) -> float:
        return float(1 / self.scale)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        return scaled_columns(logits, self.scale)
