"""Temperature scaling as CaGCN's code does it (BUPT-GAMMA/CaGCN, NeurIPS 2021), for reproduction only.

Two slips make its temperatures others than that of least NLL:

    the closure      LBFGS evaluates the loss several times in a step, and its closure never zeroes the gradient: gradients of
                     earlier evaluations add up, and T can even turn negative
    base dropout     the loop leaves the base model's dropout on: T is fitted to logits that are less often right than those it
                     is used on, and comes out too high

`ts-accumulated` has the first slip, `ts-base-dropout` the second. The T of least expected NLL under dropout
explains most of the published TS rows; going there from T = 1 by plain gradient descent and stopping after 200 steps of rate 0.01
(``steps=200``) explains all of them (docs/reproduction.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, fitted_on, fitting_nodes
from graphcal.methods.card import Card
from graphcal.methods.solvers.linear import mean_nll
from graphcal.methods.solvers.scaling import scaled_columns
from graphcal.methods.temperature import fit_scale

PASSES = 20  # with the base model's dropout on, in place of an expectation; the code of CaGCN has one
PAPER = "the code of Wang et al., NeurIPS 2021, arXiv:2109.14285"


@dataclass(frozen=True)
class AccumulatedTS:
    """One temperature, where CaGCN's LBFGS closure leaves it."""

    card: ClassVar[Card] = Card(
        title="Temperature scaling, CaGCN's optimiser",
        formula="p = softmax(z / T)",
        paper=PAPER,
        parameters="T: 1",
        cost="fit: 50 iterations of LBFGS; apply: O(N C)",
        keeps_predictions=False,
        departures="from temperature scaling: gradients are never zeroed",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> FreeTemperature:
        """T after 50 iterations on the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        return free_temperature(accumulated_scale(out.logits[on], out.graph.y[on]), out, on)


@dataclass(frozen=True)
class BaseDropoutTS:
    """One temperature, fitted to logits that the base model's dropout has made noisy."""

    steps: int | None = None  # of gradient descent from T = 1; None: the minimum

    card: ClassVar[Card] = Card(
        title="Temperature scaling, base dropout on",
        formula="p = softmax(z / T)",
        paper=PAPER,
        parameters="T: 1",
        cost=f"fit: {PASSES} passes through the model; apply: O(N C)",
        keeps_predictions=False,
        model=True,
        departures=f"from its code: {PASSES} draws of the noise instead of one; Newton's method, or gradient descent at "
        "the rate 0.01",
    )

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, or None for the minimum; got {self.steps}")

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> FreeTemperature:
        """T on noisy logits of the nodes ``on``; ``stop`` is not used."""
        logits, y = noisy_logits(out, fitting_nodes(out, on), PASSES, "ts-base-dropout")
        return free_temperature(
            fit_scale(logits, y) if self.steps is None else stopped_scale(logits, y, self.steps), out, on
        )


def noisy_logits(out: Outputs, on: Tensor, passes: int, needed_by: str) -> tuple[Tensor, Tensor]:
    """Logits of so many passes with the base model's dropout on, one below the other, and their labels."""
    generator = torch.Generator().manual_seed(0)
    drawn = [out.rerun(needed_by, dropout=generator)[on] for _ in range(passes)]
    return torch.cat(drawn), out.graph.y[on].repeat(passes)


def stopped_scale(logits: Tensor, y: Tensor, steps: int) -> Tensor:
    """s = 1/T after so many steps of gradient descent on the NLL, from T = 1 at the rate 0.01."""
    temperature = torch.ones(1, dtype=logits.dtype, requires_grad=True)
    optimiser = torch.optim.SGD([temperature], lr=0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        mean_nll(logits / temperature, y).backward()
        optimiser.step()
    return 1 / temperature.detach()


def accumulated_scale(logits: Tensor, y: Tensor) -> Tensor:
    """s = 1/T as CaGCN's loop leaves it: LBFGS (lr 0.01, 50 iterations) whose closure adds each gradient to the last."""
    temperature = torch.ones(1, dtype=logits.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure() -> Tensor:
        loss = mean_nll(logits / temperature, y)
        loss.backward()
        return loss

    optimiser.step(closure)
    return 1 / temperature.detach()


def free_temperature(scale: Tensor, out: Outputs, on: Tensor) -> FreeTemperature:
    return FreeTemperature(scale=scale.to(out.logits.dtype), **fitted_on(out, on))


class FreeTemperature(Calibration):
    """A temperature that may have come out negative, which reverses the order of the classes."""

    scale: Tensor  # (1,) s = 1/T

    @property
    def temperature(self) -> float:
        return float(1 / self.scale)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        scale = self.scale.to(logits)
        return torch.where(scale > 0, scaled_columns(logits, scale), (scale * logits).log_softmax(0))
