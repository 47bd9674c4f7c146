"""Theorem 3.1 of the SCAR paper (arXiv:2505.11335): one step of training reads as a temperature.

One plain gradient step with rate eta on the loss of one node v, cross-entropy + lambda/2 ||W||^2, gives

    s'_i = exp(b_i / tau) / sum_j exp(b_j / tau) psi_ij        (psi_ii = 1)
    psi_ij = exp(eta (s_i - y_i - s_j + y_j) h^T h')    tau = 1 / (1 - eta lambda)    b_i = W[:, i]^T h'

with h' the representation after the step, taken as given. It is an identity: `theorem_3_1` is the right-hand side, `one_step`
takes the step on a real model and compares. On the mean loss of n nodes the same algebra gives, for all of them at once,

    z' = (1 - eta lambda) W^T h'_v - eta/n sum_u (s_u - y_u) h_u^T h'_v

which `stepped_logits` computes. Only a first-order step keeps lambda inside tau. Adam with coupled L2 divides the decay's
gradient by the running size of the whole gradient: `Step.shrink` measures what the decay then takes off W.

Departures: the paper has no bias. A bias is a column of W whose representation is the constant 1, decayed like the rest (as torch
does unless told otherwise), so the identity stays exact with h -> [h, 1].
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch_geometric.data import Data

from graphcal.core import Outputs
from graphcal.lab.theory.decomposition import final_and_hidden
from graphcal.observation import observe

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def theorem_3_1(weight: Tensor, h: Tensor, h_next: Tensor, y: int, lr: float, weight_decay: float) -> Tensor:
    """s' (C,) of one node after one gradient step; weight (C, D), h and h_next (D,)."""
    error = (weight @ h).softmax(-1)  # (C,) s - y
    error[y] -= 1
    tau = 1 / (1 - lr * weight_decay)
    b = weight @ h_next  # (C,)
    log_psi = lr * (error[:, None] - error[None, :]) * (h @ h_next)  # (C, C)
    return (b / tau - (b / tau + log_psi).logsumexp(-1)).exp()


def stepped_logits(weight: Tensor, h: Tensor, h_next: Tensor, y: Tensor, lr: float, weight_decay: float) -> Tensor:
    """z' (n, C) of n nodes after one gradient step on their mean loss; h and h_next (n, D), y (n,)."""
    error = (h @ weight.T).softmax(-1) - one_hot(y, len(weight))  # (n, C)
    return (1 - lr * weight_decay) * h_next @ weight.T - lr / len(y) * (h_next @ h.T) @ error


@dataclass(frozen=True, eq=False)
class Step:
    """One training step: the theorem's prediction, the optimiser's result, and the effect of the decay on the final weight."""

    optimizer: str
    predicted: Tensor  # (n, C) probabilities
    measured: Tensor  # (n, C)
    shrink_predicted: float  # eta lambda = 1 - 1/tau
    shrink: float  # share of W that the decay removed: (W'_0 - W'_lambda) projected on W

    @property
    def gap(self) -> float:
        """Largest difference of a probability."""
        return float((self.predicted - self.measured).abs().max())


def one_step(
    model: nn.Module,
    data: Data,
    nodes: Tensor,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    optimizer: str = "sgd",
    warmup: int = 0,
) -> Step:
    """Take one step on the mean loss of ``nodes`` (their numbers), without dropout, on a copy of ``model``.

    The arithmetic is the model's own: eta lambda is a few millionths, so give a double model to see an identity in it.
    ``warmup`` steps on the same loss come first: Adam's first step from a fresh state is the sign of the gradient.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer={optimizer!r} is not one of {', '.join(OPTIMIZERS)}")
    nodes = torch.as_tensor(nodes).reshape(-1)
    model = copy.deepcopy(model).eval()
    state = None
    if warmup:
        state = _steps(model, data, nodes, OPTIMIZERS[optimizer], lr, weight_decay, warmup)
    before = observe(model, data)
    with_decay, without = copy.deepcopy(model), copy.deepcopy(model)
    _steps(with_decay, data, nodes, OPTIMIZERS[optimizer], lr, weight_decay, 1, state)
    _steps(without, data, nodes, OPTIMIZERS[optimizer], lr, 0.0, 1, state)
    after = observe(with_decay, data)
    weight, h = extended(before)
    _, h_next = extended(after)
    predicted = stepped_logits(weight, h[nodes], h_next[nodes], data.y[nodes], lr, weight_decay)
    removed = extended(observe(without, data))[0] - extended(after)[0]  # (C, D + 1)
    return Step(
        optimizer,
        predicted.softmax(-1),
        after.logits[nodes].softmax(-1),
        lr * weight_decay,
        float((removed * weight).sum() / weight.square().sum()),
    )


def _steps(
    model: nn.Module,
    data: Data,
    nodes: Tensor,
    optimizer: type[torch.optim.Optimizer],
    lr: float,
    weight_decay: float,
    count: int,
    state: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains ``model`` in place and gives the optimiser's moments, so that two copies can go on from them."""
    stepper = optimizer(model.parameters(), lr=lr, weight_decay=weight_decay)  # type: ignore[call-arg]
    if state is not None:
        moments = {"state": copy.deepcopy(state["state"]), "param_groups": stepper.state_dict()["param_groups"]}
        stepper.load_state_dict(moments)
    for _ in range(count):
        stepper.zero_grad()
        cross_entropy(model(data.x, data.edge_index)[nodes], data.y[nodes]).backward()
        stepper.step()
    return stepper.state_dict()


def extended(out: Outputs) -> tuple[Tensor, Tensor]:
    """(weight (C, D + 1), hidden (N, D + 1)) with the bias as one more column, seen by the constant 1."""
    final, hidden = final_and_hidden(out)
    return torch.cat([final.weight, final.bias[:, None]], -1), torch.cat([hidden, torch.ones_like(hidden[:, :1])], -1)
