"""CaGCN (Wang et al., NeurIPS 2021, arXiv:2109.14285): a second GCN reads the logits and gives every node its own scale.

    t = A_hat relu(A_hat z W1 + b1) W2 + b2        s = log(exp(t) + 1.1) > 0        z' = s z
    loss = CE + 0.5 margin        margin = mean_n  1 - p_1 + p_2 where the prediction is right,  p_1 - p_2 where it is wrong

p_1 and p_2 are the two largest calibrated probabilities. Fitted on validation nodes, stopped on their CE (or on ``stop``).
A positive scale keeps predictions.

Departures: the official loop switches the whole wrapper to training mode, so the *base model's* dropout is active and the
scale is learnt on noisy logits; that needs the model and is `base_dropout=True`. The version inside GATS's code has
s = softplus(t) and no margin: `link="softplus", margin=0.0`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from graphcal.core import Calibration, Outputs
from graphcal.engine.adam import Weights, descend, dropout, fitting_order, stopping_order, uniform
from graphcal.engine.linear import nll_of
from graphcal.engine.rows import hearing
from graphcal.engine.scaling import scaled
from graphcal.graphs import structure
from graphcal.methods.card import Card

LINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "cagcn": lambda t: torch.logaddexp(t, t.new_tensor(log(1.1))),  # log(e^t + 1.1)
    "softplus": softplus,
}


@dataclass(frozen=True)
class CaGCN:
    """A node-wise scale from a GCN on the logits."""

    hidden: int = 16
    dropout: float = 0.5
    lr: float = 0.01
    weight_decay: float = 5e-3
    margin: float = 0.5
    epochs: int = 2000
    patience: int = 100
    link: str = "cagcn"
    base_dropout: bool = False
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="CaGCN",
        idea="A two-layer GCN on the logits gives each node its own scale.",
        formula="z' = log(exp(t) + 1.1) z, t = GCN(z); loss CE + 0.5 margin",
        paper="Wang et al., Be Confident! Towards Trustworthy Graph Neural Networks via Confidence Calibration, NeurIPS 2021, "
        "arXiv:2109.14285",
        parameters="GCN C -> 16 -> 1: 16 C + 33",
        cost="fit: up to 2,000 full-batch Adam steps on the neighbourhood of the fitted nodes; apply: two sparse products",
        keeps_predictions=True,
        graph=True,
        departures="the base model's dropout is off while fitting (base_dropout=True switches it on, as the official loop does)",
    )

    def __post_init__(self) -> None:
        if self.link not in LINKS:
            raise ValueError(f"link must be one of {', '.join(LINKS)}; got {self.link!r}")

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> NodeScaleGCN:
        return NodeScaleGCN(**fit_node_scale(self, out, out.logits, on, stop), link=self.link)


def fit_node_scale(recipe: CaGCN, out: Outputs, inputs: Tensor, on: Tensor, stop: Tensor | None) -> Weights:
    """The weights of the GCN that reads ``inputs`` (N, I) and scales the logits."""
    nodes = fitting_order(out, on)
    watched = stopping_order(out, stop, nodes)
    adjacency = structure(out.graph).adjacency.to(out.logits.dtype)
    smooth = adjacency @ inputs  # (N, I) A_hat x, once
    generator = torch.Generator().manual_seed(recipe.seed)
    link = LINKS[recipe.link]
    near, y, z = hearing(adjacency, nodes, out.logits), out.graph.y[nodes], out.logits[nodes]
    seen = smooth[near.sources]  # (r, I)

    def noisy() -> tuple[Tensor, Tensor]:
        logits = out.rerun("CaGCN(base_dropout=True)", dropout=generator)
        return logits[nodes], (adjacency @ logits)[near.sources]

    def loss(w: Weights) -> Tensor:
        logits, heard = noisy() if recipe.base_dropout else (z, seen)
        hidden = dropout((heard @ w["w1"] + w["b1"]).relu(), recipe.dropout, generator)  # (r, 16)
        moved = link(near @ (hidden @ w["w2"]) + w["b2"]) * logits  # (n, C)
        value = nll_of(moved, y)
        return value + recipe.margin * margin(moved, y) if recipe.margin else value

    near_watched = near if watched is nodes else hearing(adjacency, watched, out.logits)
    seen_watched, z_watched, y_watched = smooth[near_watched.sources], out.logits[watched], out.graph.y[watched]

    def watch(w: Weights) -> Tensor:
        t = near_watched @ ((seen_watched @ w["w1"] + w["b1"]).relu() @ w["w2"]) + w["b2"]
        return nll_of(link(t) * z_watched, y_watched)

    return descend(
        start_weights(inputs.shape[1], recipe.hidden, generator, out.logits),
        loss,
        watch,
        lr=recipe.lr,
        epochs=recipe.epochs,
        patience=recipe.patience,
        weight_decay=recipe.weight_decay,
    )


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """Small where right predictions are clear and wrong ones are not."""
    first, second = logits.softmax(-1).topk(2, -1).values.unbind(-1)
    right = logits.argmax(-1) == y
    return torch.where(right, 1 - first + second, first - second).mean()


def start_weights(inputs: int, hidden: int, generator: torch.Generator, like: Tensor) -> Weights:
    """U(-1/sqrt(out), 1/sqrt(out)) for weights and biases, as the official layers."""
    return {
        "w1": uniform((inputs, hidden), hidden**-0.5, generator, like),
        "b1": uniform((hidden,), hidden**-0.5, generator, like),
        "w2": uniform((hidden, 1), 1.0, generator, like),
        "b2": uniform((1,), 1.0, generator, like),
    }


def node_scale(out: Outputs, inputs: Tensor, w: Weights, link: str) -> Tensor:
    """s of every node."""  # (N,)
    adjacency = structure(out.graph).adjacency.to(out.logits.dtype)
    hidden = ((adjacency @ inputs) @ w["w1"] + w["b1"]).relu()
    return LINKS[link](adjacency @ (hidden @ w["w2"]) + w["b2"]).squeeze(-1)


class NodeScaleGCN(Calibration):
    w1: Tensor  # (C, 16)
    b1: Tensor  # (16,)
    w2: Tensor  # (16, 1)
    b2: Tensor  # (1,)
    link: str

    def scale(self, out: Outputs) -> Tensor:
        """s of every node."""  # (N,)
        weights = {name: w.to(out.logits) for name, w in self.named_buffers()}
        return node_scale(out, out.logits, weights, self.link)

    def forward(self, out: Outputs) -> Tensor:
        return scaled(out, self.scale(out))
