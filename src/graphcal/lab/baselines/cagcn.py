"""CaGCN (Wang et al., NeurIPS 2021, arXiv:2109.14285): a second GCN reads the logits and gives every node its own scale.

    t = A_hat relu(A_hat z W1 + b1) W2 + b2        s = log(exp(t) + 1.1) > 0        z' = s z
    loss = CE + 0.5 margin        margin = mean_n  1 - p_1 + p_2 where the prediction is right,  p_1 - p_2 where it is wrong

p_1 and p_2 are the two largest calibrated probabilities. Fitted on validation nodes, stopped on their CE (or on ``stop``).

DC-GNN: a calibration GNN that also sees how much a node agrees with its neighbours. *Our reading.*

Neither text nor code of the method was found; what is known is that a same-class-neighbour ratio that counts the node
itself enters a calibration GNN which gives node-wise temperatures and aims at telling right from wrong predictions.
So this is CaGCN, its scale, its loss and its settings, on two more columns:

    t = GCN([z, ratio, conf])        ratio_i = (1 + neighbours with i's predicted class) / (1 + degree_i)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Needs, Outputs, fitted_on
from graphcal.graphs import neighbour_agreement, structure
from graphcal.lab.engine.rows import RowSlice, row_slice
from graphcal.methods.card import Card
from graphcal.methods.solvers.adam import Weights, adam, dropout, uniform
from graphcal.methods.solvers.linear import mean_nll
from graphcal.methods.solvers.node_order import fitting_order, stopping_order
from graphcal.methods.solvers.scaling import scaled

Link = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class NodeScaleSettings:
    """Hyper-parameters of a two-layer GCN that gives every node a scale, as CaGCN's paper has them."""

    hidden: int = 16
    dropout: float = 0.5
    lr: float = 0.01
    weight_decay: float = 5e-3
    margin: float = 0.5
    epochs: int = 2000
    patience: int = 100
    seed: int = 0


@dataclass(frozen=True)
class CaGCN(NodeScaleSettings):
    """A two-layer GCN on the logits gives each node its own scale.

    For graphs with thousands of validation nodes: it has some hundred weights, and few nodes are soon learnt by heart.
    """

    card: ClassVar[Card] = Card(
        title="CaGCN",
        formula="z' = log(exp(t) + 1.1) z, t = GCN(z); loss CE + 0.5 margin",
        paper="Wang et al., Be Confident! Towards Trustworthy Graph Neural Networks via Confidence Calibration, NeurIPS 2021, "
        "arXiv:2109.14285",
        parameters="GCN C -> 16 -> 1: 16 C + 33",
        cost="fit: up to 2,000 full-batch Adam steps on the neighbourhood of the fitted nodes; apply: two sparse products",
        keeps_predictions=True,
        graph=True,
        departures="the official loop leaves the base model's dropout on, so its scale is learnt on noisy logits; here it is off",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> NodeScaleGCN:
        """The GCN of least CE on the nodes ``stop`` (or ``on``) along Adam's way down the loss of the nodes ``on``."""
        return NodeScaleGCN(**fit_node_scale(self, out, out.logits, on, stop), **fitted_on(out, on))


def cagcn_link(t: Tensor) -> Tensor:
    """log(e^t + 1.1)"""
    return torch.logaddexp(t, t.new_tensor(log(1.1)))


def node_scales(
    near: RowSlice | Tensor,
    smooth: Tensor,
    w: Weights,
    link: Link = cagcn_link,
    noise: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """s (n, 1) of the nodes whose rows of A_hat are ``near`` (n, r); smooth (r, I) is A_hat x, noise drops hidden units out."""
    hidden = (smooth @ w["w1"] + w["b1"]).relu()  # (r, 16)
    hidden = hidden if noise is None else noise(hidden)
    return link(near @ (hidden @ w["w2"]) + w["b2"])


def fit_node_scale(
    recipe: NodeScaleSettings,
    out: Outputs,
    inputs: Tensor,
    on: Tensor,
    stop: Tensor | None,
    link: Link = cagcn_link,
    redraw: Callable[[torch.Generator], Tensor] | None = None,
) -> Weights:
    """The weights of the GCN that reads ``inputs`` (N, I) and scales the logits.

    ``redraw`` gives the logits (N, C) of one epoch, read and scaled in place of the fixed ones.
    """
    nodes = fitting_order(out, on)
    watched = stopping_order(out, stop, nodes)
    adjacency = structure(out.graph).adjacency.to(out.logits.dtype)
    smooth = adjacency @ inputs  # (N, I) A_hat x, once
    generator = torch.Generator().manual_seed(recipe.seed)
    near, y, z = row_slice(adjacency, nodes, out.logits), out.graph.y[nodes], out.logits[nodes]
    fixed = z, smooth[near.cols]
    near_watched = near if watched is nodes else row_slice(adjacency, watched, out.logits)
    smooth_watched, z_watched, y_watched = smooth[near_watched.cols], out.logits[watched], out.graph.y[watched]

    def drawn(logits: Tensor) -> tuple[Tensor, Tensor]:
        return logits[nodes], (adjacency @ logits)[near.cols]

    def loss(w: Weights) -> Tensor:
        logits, seen = fixed if redraw is None else drawn(redraw(generator))
        scale = node_scales(near, seen, w, link, lambda hidden: dropout(hidden, recipe.dropout, generator))
        moved = scale * logits  # (n, C)
        return mean_nll(moved, y) + recipe.margin * margin(moved, y)

    def watch(w: Weights) -> Tensor:
        return mean_nll(node_scales(near_watched, smooth_watched, w, link) * z_watched, y_watched)

    return adam(
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


def scale_of_every_node(calibration: Calibration, out: Outputs, inputs: Tensor, link: Link = cagcn_link) -> Tensor:
    """s (N,) by the GCN whose weights a calibration holds."""
    adjacency = structure(out.graph).adjacency.to(out.logits.dtype)
    weights = {name: w.to(out.logits) for name, w in calibration.named_buffers()}
    return node_scales(adjacency, adjacency @ inputs, weights, link).squeeze(-1)


class NodeScaleGCN(Calibration):
    """Calibration fitted by `CaGCN`."""

    needs = Needs(edges=True, whole_graph=True)

    w1: Tensor  # (C, 16)
    b1: Tensor  # (16,)
    w2: Tensor  # (16, 1)
    b2: Tensor  # (1,)

    def scale(self, out: Outputs) -> Tensor:
        """s of every node."""  # (N,)
        return scale_of_every_node(self, out, out.logits)

    def forward(self, out: Outputs) -> Tensor:
        return scaled(out.logits, self.scale(out))


@dataclass(frozen=True)
class DCGNN(NodeScaleSettings):
    """CaGCN that also reads the share of agreeing neighbours and the confidence.

    Here because SCAR's paper compares with it; `CaGCN` says when a network of this size is worth its cost.
    """

    card: ClassVar[Card] = Card(
        title="DC-GNN (our reading)",
        formula="z' = log(exp(t) + 1.1) z, t = GCN([z, ratio, conf])",
        paper="as cited by SCAR (arXiv:2505.11335); no text or code found",
        parameters="GCN C + 2 -> 16 -> 1: 16 C + 65",
        cost="fit: up to 2,000 full-batch Adam steps on the neighbourhood of the fitted nodes; apply: two sparse products",
        keeps_predictions=True,
        graph=True,
        departures="all of it is a reading, not a reproduction",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> AgreementScaleGCN:
        """The GCN of least CE on the nodes ``stop`` (or ``on``) along Adam's way down the loss of the nodes ``on``."""
        return AgreementScaleGCN(**fit_node_scale(self, out, inputs_of(out), on, stop), **fitted_on(out, on))


def inputs_of(out: Outputs) -> Tensor:
    """[z, ratio, conf]"""  # (N, C + 2)
    graph = structure(out.graph)
    same = neighbour_agreement(out.pred, graph) * graph.degree
    ratio = ((1 + same) / (1 + graph.degree)).to(out.logits)
    conf = out.logits.softmax(-1).max(-1).values
    return torch.cat([out.logits, ratio[:, None], conf[:, None]], -1)


class AgreementScaleGCN(NodeScaleGCN):
    """Calibration fitted by `DCGNN`; w1 is (C + 2, 16)."""

    def scale(self, out: Outputs) -> Tensor:
        return scale_of_every_node(self, out, inputs_of(out))
