"""Order-invariant, intra-order-preserving calibration (Rahimi et al. 2020, arXiv:2003.06820).

With the logits of a node sorted, z_(1) >= z_(2) >= ... >= z_(C),

    z'_(i) = sum_{k >= i} (z_(k) - z_(k+1)) m_k        k < C        m = softplus(MLP(z_(1), ..., z_(C))) > 0

The gaps stay non-negative, so the order of the classes, and the prediction, never change. m = 1 is the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1, log
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from graphcal.core import Calibration, Outputs, fitted_on
from graphcal.methods.card import Card
from graphcal.methods.solvers.adam import Weights, adam, uniform
from graphcal.methods.solvers.linear import mean_nll
from graphcal.methods.solvers.node_order import fitting_order, stopping_order
from graphcal.methods.solvers.scaling import keep_top
from graphcal.threads import one_thread


@dataclass(frozen=True)
class OrderInvariant:
    """Stretch the gaps between a node's sorted logits by positive factors from a small network.

    A temperature that depends on the shape of the logits; for many validation nodes and not too many classes.
    """

    lr: float = 0.01
    weight_decay: float = 0.005
    epochs: int = 2000
    patience: int = 100
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="Order-invariant calibration",
        formula="z'_(i) = sum_{k>=i} (z_(k) - z_(k+1)) softplus(MLP(sorted z))_k",
        paper="Rahimi et al., Intra Order-preserving Functions for Calibration, NeurIPS 2020, arXiv:2003.06820",
        parameters="MLP C -> C -> C-1: about 2 C^2",
        cost="fit: up to 2,000 full-batch Adam steps on the fitted nodes; apply: O(N C^2)",
        keeps_predictions=True,
        minimises_nll=True,
        departures="starts at the identity (the last bias is the inverse softplus of 1) instead of a random map; weight decay "
        "acts on the two matrices only",
    )

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> StretchedGaps:
        """The network of least NLL on the nodes ``stop`` (or ``on``) along Adam's way down that of the nodes ``on``."""
        nodes = fitting_order(out, on)
        c, generator = out.num_classes, torch.Generator().manual_seed(self.seed)
        start = {
            "w1": uniform((c, c), c**-0.5, generator, out.logits),
            "b1": out.logits.new_zeros(c),
            "w2": 0.1 * uniform((c, c - 1), c**-0.5, generator, out.logits),
            "b2": out.logits.new_full((c - 1,), log(expm1(1.0))),  # softplus^-1(1)
        }

        def nll(of: Tensor) -> Callable[[Weights], Tensor]:
            z, order = out.logits[of].sort(-1, descending=True)
            rank = (order == out.graph.y[of, None]).int().argmax(-1)  # the place of the label among the sorted classes
            return lambda w: mean_nll(stretched(z, w), rank)

        fitted = adam(
            start,
            nll(nodes),
            None if stop is None else nll(stopping_order(out, stop, nodes)),
            lr=self.lr,
            epochs=self.epochs,
            patience=self.patience,
            weight_decay={"w1": self.weight_decay, "w2": self.weight_decay},
        )
        return StretchedGaps(**fitted, **fitted_on(out, on))


def stretched(z: Tensor, w: Weights) -> Tensor:
    """z' for logits z (n, C) sorted from largest to smallest; the smallest becomes 0."""
    m = softplus((z @ w["w1"] + w["b1"]).relu() @ w["w2"] + w["b2"])  # (n, C - 1)
    gaps = (z[:, :-1] - z[:, 1:]) * m
    sums = gaps.flip(-1).cumsum(-1).flip(-1)
    return torch.cat([sums, torch.zeros_like(sums[:, :1])], -1)


class StretchedGaps(Calibration):
    """Calibration fitted by `OrderInvariant`."""

    w1: Tensor  # (C, C)
    b1: Tensor  # (C,)
    w2: Tensor  # (C, C - 1)
    b2: Tensor  # (C - 1,)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        z, order = logits.sort(0, descending=True)
        weights = {name: w.to(logits) for name, w in self.named_buffers()}
        unsorted = torch.empty_like(z).scatter(0, order, stretched(z.T, weights).T)
        return keep_top(unsorted.log_softmax(0), logits)
