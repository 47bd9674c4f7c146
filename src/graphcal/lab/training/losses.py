"""Training losses, each for R replicas at once. With p the probability of the true class y of a training node:

    CrossEntropy   -log p
    AULS           -sum_c q_c log(p_c + 1e-9),  q = (1 - e) onehot(y) + e / C,  e = epsilon + gamma / (1 + epoch)
                   AU-LS, Wang, Yang, Huang & Cheng, "Moderate Message Passing Improves Calibration", AAAI 2024

Validation always uses the cross-entropy, as it is or after the best temperature, so early stopping is the same for all.

Departures. AU-LS: no official code was found; with e < 0 the loss has no lower bound, and the floor 1e-9 inside the logarithm is
the one in SCAR's baseline script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Targets:
    """The labelled nodes of a pass: their classes, and each replica's weights on them (0 where it does not use a node)."""

    y: Tensor  # (n,)
    weights: Tensor  # (R, n) each row sums to 1

    def of(self, running: Tensor) -> Targets:
        """The same for some of the replicas."""
        return Targets(self.y, self.weights[running])

    def mean(self, values: Tensor) -> Tensor:
        return (values * self.weights).sum(1)  # (R,)

    def pick(self, by_class: Tensor) -> Tensor:
        """The true class' value, from (R, C, n)"""  # (R, n)
        index = self.y.expand(len(by_class), 1, -1)
        return by_class.gather(1, index)[:, 0]


def log_probs_by_class(logits: Tensor) -> Tensor:
    """(R, n, C) -> (R, C, n): with nodes innermost, torch's log_softmax is some twenty times faster for few classes."""
    return logits.transpose(1, 2).contiguous().log_softmax(1)


def nll(logits: Tensor, targets: Targets) -> Tensor:
    """Mean cross-entropy of each replica."""  # (R,)
    return -targets.mean(targets.pick(log_probs_by_class(logits)))


def refined_nll(logits: Tensor, targets: Targets) -> Tensor:
    """Mean cross-entropy of each replica after its best temperature (arXiv:2501.19195): what no temperature could repair.

    Newton's method in log s with s = 1/T, in steps of at most 1, kept between e^-4 and e^4.
    """  # (R,)
    z = logits.transpose(1, 2).double()  # (R, C, n)
    true, u = targets.pick(z), z.new_zeros(len(z))
    for _ in range(8):
        s = u.exp()
        p = (s[:, None, None] * z).softmax(1)
        mean = (p * z).sum(1)  # (R, n)
        slope = s * targets.mean(mean - true)
        bend = slope + s.square() * targets.mean((p * (z - mean[:, None]).square()).sum(1))
        step = torch.where(bend > 0, slope / bend, slope.sign())
        u = (u - step.clamp(-1, 1)).clamp(-4, 4)
    return nll(u.exp()[:, None, None] * logits.double(), targets).float()


def accuracy(logits: Tensor, targets: Targets) -> Tensor:
    return targets.mean((logits.argmax(-1) == targets.y).float())  # (R,)


@runtime_checkable
class Loss(Protocol):
    """A frozen dataclass whose fields, ``name`` among them, are plain data."""

    @property
    def name(self) -> str: ...

    def __call__(self, logits: Tensor, targets: Targets, epoch: int) -> Tensor:
        """The loss of each replica: (R, n, C) -> (R,)"""
        ...


@dataclass(frozen=True)
class CrossEntropy:
    """-log p of the true class, averaged over the training nodes."""

    name: str = field(default="cross-entropy", init=False, repr=False)

    def __call__(self, logits: Tensor, targets: Targets, epoch: int) -> Tensor:
        return nll(logits, targets)


@dataclass(frozen=True)
class AULS:
    """Label smoothing by epsilon + gamma / (1 + epoch); a negative epsilon sharpens (AU-LS)."""

    epsilon: float = -0.5  # smoothing in the limit
    gamma: float = 0.5  # extra smoothing in the first epochs
    name: str = field(default="au-ls", init=False, repr=False)

    def __call__(self, logits: Tensor, targets: Targets, epoch: int) -> Tensor:
        smoothing = self.epsilon + self.gamma / (1 + epoch)
        log_probs = (log_probs_by_class(logits).exp() + 1e-9).log()
        true, every = targets.pick(log_probs), log_probs.mean(1)
        return -targets.mean((1 - smoothing) * true + smoothing * every)


LOSSES: dict[str, type[CrossEntropy] | type[AULS]] = {"cross-entropy": CrossEntropy, "au-ls": AULS}


def loss_of(value: Loss | str | Mapping[str, Any]) -> Loss:
    """The loss with a name, or with a name and settings: ``{"name": "au-ls", "epsilon": -0.3}``."""
    if isinstance(value, Loss):
        return value
    settings = {"name": value} if isinstance(value, str) else dict(value)
    name = settings.pop("name", None)
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}; choose among {', '.join(LOSSES)}")
    kind = LOSSES[name]
    allowed = [key for key, f in kind.__dataclass_fields__.items() if f.init]
    unknown = [key for key in settings if key not in allowed]
    if unknown:
        raise ValueError(f"loss {name!r} has no setting {', '.join(unknown)}; it has {', '.join(allowed) or 'none'}")
    return kind(**settings)
