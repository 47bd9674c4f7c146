"""Temperature scaling (Guo et al. 2017, arXiv:1706.04599): z' = z / T with one T for all nodes.

Validation NLL is convex in s = 1/T, so T is found by Newton's method to machine precision.

Departures: Guo's code and most copies run a few steps of LBFGS or Adam on T. CaGCN's copy forgets to zero the gradient
inside the LBFGS closure, so gradients of earlier evaluations add up and T can even turn negative (`solver="accumulated"`). Its
loops also leave the base model's dropout on: T is fitted to logits that are less often right than those it is used on, and comes
out too high. `solver="base-dropout"` gives the T of smallest expected NLL under that noise, which explains most of the published
TS rows; `solver="base-dropout-200"` goes there from T = 1 by plain gradient descent and stops after 200 steps of rate 0.01, which
explains all of them (docs/reproduction.md). `solver="cagcn"` is its code as it stands, that closure on one draw of the noise. All
these are for reproduction only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, fitting_nodes
from graphcal.engine.linear import fit_linear, nll_of
from graphcal.engine.scaling import scaled
from graphcal.methods.card import Card

SMALLEST_SCALE = 1e-3  # T <= 1000: a model whose logits carry no information gets (almost) uniform confidence
SOLVERS = ("exact", "accumulated", "base-dropout", "base-dropout-N (N steps of gradient descent)", "cagcn")
NAMED = re.compile(r"exact|accumulated|base-dropout(-[1-9]\d*)?|cagcn")
PASSES = 20  # with the base model's dropout on, in place of an expectation; the code of CaGCN has one


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
        departures="fitted exactly (convex in 1/T); for reproduction: solver='accumulated' is CaGCN's LBFGS closure that never "
        "zeroes its gradient, solver='base-dropout' fits while the base model's dropout is on, as its loops do, "
        "'base-dropout-200' stops such a fit after 200 plain gradient steps, 'cagcn' is the closure with that dropout on",
    )

    def __post_init__(self) -> None:
        if not NAMED.fullmatch(self.solver):
            raise ValueError(f"solver must be one of {', '.join(SOLVERS)}; got {self.solver!r}")

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> Temperature:
        on = fitting_nodes(out, on)
        noisy = self.solver not in ("exact", "accumulated")
        logits, y = _under_dropout(out, on, self.solver) if noisy else (out.logits[on], out.graph.y[on])
        if self.solver in ("accumulated", "cagcn"):
            scale = accumulated_scale(logits, y)
        elif self.solver in ("exact", "base-dropout"):
            scale = fit_scale(logits, y)
        else:
            scale = stopped_scale(logits, y, steps=int(self.solver.removeprefix("base-dropout-")))
        return Temperature(scale=scale.to(out.logits.dtype))


def _under_dropout(out: Outputs, on: Tensor, solver: str) -> tuple[Tensor, Tensor]:
    """Logits of so many passes with the base model's dropout on, one below the other, and their labels."""
    generator = torch.Generator().manual_seed(0)
    passes = 1 if solver == "cagcn" else PASSES
    drawn = [out.rerun(f"solver={solver!r}", dropout=generator)[on] for _ in range(passes)]
    return torch.cat(drawn), out.graph.y[on].repeat(passes)


def fit_scale(logits: Tensor, y: Tensor) -> Tensor:
    """s = 1/T (1,) of smallest NLL."""
    scale = fit_linear(torch.zeros_like(logits), logits[:, :, None], y, start=torch.ones(1))
    return scale.clamp(min=SMALLEST_SCALE)


def stopped_scale(logits: Tensor, y: Tensor, steps: int) -> Tensor:
    """s = 1/T after so many steps of gradient descent on the NLL, from T = 1 at the rate 0.01."""
    temperature = torch.ones(1, dtype=logits.dtype, requires_grad=True)
    optimiser = torch.optim.SGD([temperature], lr=0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        nll_of(logits / temperature, y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return 1 / temperature.detach()


def accumulated_scale(logits: Tensor, y: Tensor) -> Tensor:
    """s = 1/T as CaGCN's loop leaves it: LBFGS (lr 0.01, 50 iterations) whose closure adds each gradient to the last."""
    temperature = torch.ones(1, dtype=logits.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure() -> Tensor:
        loss = nll_of(logits / temperature, y)
        loss.backward()  # no zero_grad: this is the slip
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
