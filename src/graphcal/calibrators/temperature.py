"""Temperature scaling (Guo et al. 2017, arXiv:1706.04599): z' = z / T with one T for all nodes.

Validation NLL is convex in s = 1/T, so T is found by Newton's method to machine precision.

Departures: Guo's code and most copies run 50 iterations of LBFGS at the rate 0.01 on T, which stop well before the minimum when T
has far to go (`solver="short"`). CaGCN's copy forgets to zero the gradient inside the closure as well, so gradients of earlier
evaluations add up and T can even turn negative (`solver="accumulated"`). Both are for reproduction only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.calibrators.card import Card
from graphcal.calibrators.fitting import fit_linear, nll_of
from graphcal.calibrators.scaling import scaled
from graphcal.core import Calibration, Outputs, fitting_nodes

SMALLEST_SCALE = 1e-3  # T <= 1000: a model whose logits carry no information gets (almost) uniform confidence
SOLVERS = ("exact", "short", "accumulated")


@dataclass(frozen=True)
class TemperatureScaling:
    """One temperature for all nodes, fitted exactly."""

    solver: str = "exact"

    card: ClassVar[Card] = Card(
        title="Temperature scaling",
        idea="Divide all logits by one temperature.",
        formula="p = softmax(z / T)",
        paper="Guo et al., On Calibration of Modern Neural Networks, ICML 2017, arXiv:1706.04599",
        parameters="T: 1",
        cost="fit: a few Newton steps on the fitted nodes; apply: O(N C)",
        keeps_predictions=True,
        minimises_nll=True,
        departures="fitted exactly (convex in 1/T); solver='short' is the usual 50 iterations of LBFGS, which stop early; "
        "solver='accumulated' is CaGCN's closure, which never zeroes its gradient",
    )

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(SOLVERS)}; got {self.solver!r}")

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> Temperature:
        on = fitting_nodes(out, on)
        logits, y = out.logits[on], out.graph.y[on]
        exact = self.solver == "exact"
        scale = fit_scale(logits, y) if exact else lbfgs_scale(logits, y, accumulate=self.solver == "accumulated")
        return Temperature(scale=scale.to(out.logits.dtype))


def fit_scale(logits: Tensor, y: Tensor) -> Tensor:
    """s = 1/T (1,) of smallest NLL."""
    scale = fit_linear(torch.zeros_like(logits), logits[:, :, None], y, start=torch.ones(1))
    return scale.clamp(min=SMALLEST_SCALE)


def lbfgs_scale(logits: Tensor, y: Tensor, accumulate: bool) -> Tensor:
    """s = 1/T as 50 iterations of LBFGS at the rate 0.01 leave it. CaGCN's closure adds each gradient to the last (`accumulate`)."""
    temperature = torch.ones(1, dtype=logits.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure() -> Tensor:
        if not accumulate:
            optimiser.zero_grad()
        loss = nll_of(logits / temperature, y)
        loss.backward()
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return 1 / temperature.detach()


class Temperature(Calibration):
    scale: Tensor  # (1,) s = 1/T

    @property
    def temperature(self) -> float:
        return float(1 / self.scale)

    def forward(self, out: Outputs) -> Tensor:
        if float(self.scale) <= 0:  # only the accumulated solver gets here; a negative temperature reverses the order
            return (self.scale.to(out.logits) * out.logits).log_softmax(-1)
        return scaled(out, self.scale)
