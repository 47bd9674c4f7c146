"""DCGC, data-centric graph calibration (Yang et al., WWW 2024): repair the graph, run the model again, then calibrate.

An edge between nodes with similar predictions should weigh more. With z and p of the frozen model,

    w_uv = relu(MLP([z_u; z_v])) / ( ||q_u - q_v||_2 + a )        q = softmax(b p)        a = 0.5, b = 10

The MLP (2C -> 4C -> 1) is trained by the cross-entropy of the *training* nodes through the frozen model on the
weighted graph, and stopped by that of the fitted nodes. The model is run once more with the final weights, and any
post-hoc calibrator is fitted to the new logits (GATS by default). Predictions may change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Needs, Outputs, Recipe, fitted_on
from graphcal.methods.card import Card
from graphcal.methods.solvers.adam import Weights, adam, uniform
from graphcal.methods.solvers.linear import mean_nll
from graphcal.methods.solvers.node_order import fitting_order


@dataclass(frozen=True)
class DCGC:
    """Strengthen edges between nodes that look alike, run the frozen model again, calibrate what comes out.

    For graphs with many wrong edges and a model that can be run again (`graphcal.lab.train`); the slowest calibrator here.
    """

    calibrator: str | Recipe = "gats"
    alpha: float = 0.5
    beta: float = 10.0
    lr: float = 0.01
    weight_decay: float = 5e-3
    epochs: int = 1000
    patience: int = 100
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="DCGC",
        formula="w_uv = relu(MLP([z_u; z_v])) / (||q_u - q_v|| + 0.5), q = softmax(10 p); then any calibrator",
        paper="Yang et al., Calibrating Graph Neural Networks from a Data-centric Perspective, WWW 2024",
        parameters="MLP 2 C -> 4 C -> 1: about 8 C^2; and the calibrator's",
        cost="fit: up to 1,000 passes through the model with gradients, then the calibrator; apply: one pass through the model",
        keeps_predictions=False,
        graph=True,
        model=True,
        labels="the nodes it is fitted on and the training nodes (edge weights)",
        departures="the calibrator is fitted afresh on the new logits; the official code goes on from one already fitted to the "
        "plain logits, twice the budget. The MLP starts at 1 for every edge, its inputs standardised once instead of "
        "by batch norm",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> RepairedGraph:
        """Edge weights of least NLL on the nodes ``on``, then the calibrator, fitted on ``on`` and stopped on ``stop``."""
        nodes = fitting_order(out, on)
        train = out.graph.get("train_mask")
        if train is None or not train.any():
            raise ValueError(
                "DCGC learns edge weights from training labels, but the graph has no train_mask that selects nodes"
            )
        mean, std = out.logits.mean(0), out.logits.std(0).clamp(min=1e-6)
        ends, closeness = edge_inputs(out, mean, std, self.alpha, self.beta)
        y_train, y = out.graph.y[train], out.graph.y[nodes]

        def logits(w: Weights) -> Tensor:
            return out.rerun("DCGC", edge_weights(ends, closeness, w))

        generator = torch.Generator().manual_seed(self.seed)
        fitted = adam(
            first_weights(out.num_classes, generator, out.logits),
            lambda w: mean_nll(logits(w)[train], y_train),
            lambda w: mean_nll(logits(w)[nodes], y),
            lr=self.lr,
            epochs=self.epochs,
            patience=self.patience,
            weight_decay=self.weight_decay,
        )
        with torch.no_grad():
            repaired = replace(out, logits=logits(fitted).detach(), hidden=None)
        inner = recipe_of(self.calibrator).fit(repaired, on, stop)
        return RepairedGraph(
            **fitted,
            mean=mean,
            std=std,
            calibration=inner,
            alpha=self.alpha,
            beta=self.beta,
            **fitted_on(out, on),
        )


def recipe_of(calibrator: str | Recipe) -> Recipe:
    from graphcal.methods import CALIBRATORS  # the table holds DCGC itself: it is complete only now

    return CALIBRATORS[calibrator]() if isinstance(calibrator, str) else calibrator


def edge_inputs(out: Outputs, mean: Tensor, std: Tensor, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    """[z_u; z_v] of every edge, standardised (E, 2C), and 1 / (||q_u - q_v|| + alpha) (E,)."""
    if out.graph.get("edge_index") is None:
        raise ValueError(
            "DCGC weighs the edges, but the graph has no edge_index: give one, or choose another calibrator"
        )
    source, target = out.graph.edge_index
    q = (beta * out.logits.softmax(-1)).softmax(-1)
    closeness = 1 / ((q[source] - q[target]).norm(dim=-1) + alpha)
    z = (out.logits - mean) / std
    return torch.cat([z[source], z[target]], -1), closeness


def edge_weights(ends: Tensor, closeness: Tensor, w: Weights) -> Tensor:
    """w_uv (E,)"""
    hidden = (ends @ w["w1"] + w["b1"]).relu()
    return ((hidden @ w["w2"]).squeeze(-1) + w["b2"]).relu() * closeness


def first_weights(classes: int, generator: torch.Generator, like: Tensor) -> Weights:
    """A network that says 1 for every edge."""
    return {
        "w1": uniform((2 * classes, 4 * classes), (2 * classes) ** -0.5, generator, like),
        "b1": uniform((4 * classes,), (2 * classes) ** -0.5, generator, like),
        "w2": like.new_zeros(4 * classes, 1),
        "b2": like.new_ones(1),
    }


class RepairedGraph(Calibration):
    """Calibration fitted by `DCGC`."""

    needs = Needs(edges=True, whole_graph=True)

    w1: Tensor  # (2 C, 4 C)
    b1: Tensor  # (4 C,)
    w2: Tensor  # (4 C, 1)
    b2: Tensor  # (1,)
    mean: Tensor  # (C,) of the logits it was fitted on
    std: Tensor  # (C,)
    calibration: Calibration
    alpha: float
    beta: float

    def forward(self, out: Outputs) -> Tensor:
        buffers = {name: w.to(out.logits) for name, w in self.named_buffers(recurse=False)}
        ends, closeness = edge_inputs(out, buffers["mean"], buffers["std"], self.alpha, self.beta)
        with torch.no_grad():
            logits = out.rerun("DCGC", edge_weights(ends, closeness, buffers)).detach()
        return self.calibration(replace(out, logits=logits, hidden=None))
