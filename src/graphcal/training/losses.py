"""Training losses, each for R replicas at once. With p the probability of the true class y of a training node:

    ce        -log p
    au-ls     -sum_c q_c log(p_c + 1e-9),  q = (1 - e) onehot(y) + e / C,  e = epsilon + gamma / (1 + epoch)
              AU-LS, Wang, Yang, Huang & Cheng, "Moderate Message Passing Improves Calibration", AAAI 2024
    gcl       -(1 + gamma p) log p
              Wang, Yang & Cheng, "GCL: Graph Calibration Loss", ACM MM 2022
    centroid  -log p + pull * (1 - cos(h, w_y))
              h the representation that enters the final layer, w_y the final layer's weights of class y

Validation always uses the cross-entropy, so early stopping is the same for all.

Departures. AU-LS: no official code was found; with e < 0 the loss has no lower bound, and the floor 1e-9 inside the logarithm is
the one in SCAR's baseline script. GCL: no official code was found either; the form is that of a third-party implementation, the
gradient flows through both factors, and gamma is not published (0.1 is ours). The centroid term is the SCAR reviewers' suggestion
of pulling representations to their centroids while training; no paper defines it. It is scale free because centroids are an order
of magnitude longer than representations (about 10 against 0.7 on Cora).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import normalize

from graphcal.training.settings import Training


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


@dataclass(frozen=True, eq=False)
class Pass:
    """What a training pass computed."""

    logits: Tensor  # (R, n, C)
    epoch: int
    hidden: Tensor | None = None  # (R, n, D) for losses in NEEDS_HIDDEN
    centroids: Tensor | None = None  # (R, D, C)


def log_probs_by_class(logits: Tensor) -> Tensor:
    """(R, n, C) -> (R, C, n): with nodes innermost, torch's log_softmax is some twenty times faster for few classes."""
    return logits.transpose(1, 2).contiguous().log_softmax(1)


def nll(logits: Tensor, targets: Targets) -> Tensor:
    """Mean cross-entropy of each replica."""  # (R,)
    return -targets.mean(targets.pick(log_probs_by_class(logits)))


def accuracy(logits: Tensor, targets: Targets) -> Tensor:
    return targets.mean((logits.argmax(-1) == targets.y).float())  # (R,)


def _ce(done: Pass, targets: Targets, training: Training) -> Tensor:
    return nll(done.logits, targets)


def _au_ls(done: Pass, targets: Targets, training: Training) -> Tensor:
    smoothing = training.au_epsilon + training.au_gamma / (1 + done.epoch)
    log_probs = (log_probs_by_class(done.logits).exp() + 1e-9).log()
    true, every = targets.pick(log_probs), log_probs.mean(1)
    return -targets.mean((1 - smoothing) * true + smoothing * every)


def _gcl(done: Pass, targets: Targets, training: Training) -> Tensor:
    log_p = targets.pick(log_probs_by_class(done.logits))
    return -targets.mean((1 + training.gcl_gamma * log_p.exp()) * log_p)


def _centroid(done: Pass, targets: Targets, training: Training) -> Tensor:
    if done.hidden is None or done.centroids is None:
        raise ValueError("loss='centroid' needs a backbone with a final linear layer; this one has none")
    cosines = normalize(done.hidden, dim=-1) @ normalize(done.centroids, dim=1)  # (R, n, C)
    return nll(done.logits, targets) + training.centroid_pull * targets.mean(1 - targets.pick(cosines.transpose(1, 2)))


Loss = Callable[[Pass, Targets, Training], Tensor]
LOSSES: dict[str, Loss] = {"ce": _ce, "au-ls": _au_ls, "gcl": _gcl, "centroid": _centroid}
NEEDS_HIDDEN = ("centroid",)


def loss_of(training: Training) -> Loss:
    if training.loss not in LOSSES:
        raise ValueError(f"unknown loss {training.loss!r}; choose among {', '.join(LOSSES)}")
    return LOSSES[training.loss]
