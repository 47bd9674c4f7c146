"""SimCalib (Tang et al., AAAI 2024, arXiv:2312.11858): temperatures from similarity between nodes. *Our reading.*

Only the abstract and secondary sources were at hand. Each node is described by

    x_i = [ sorted logits scaled to [0, 1];  sorted distances to the class prototypes;  agreement;  log relative degree ]

The distance to class c is Mahalanobis' in the final representation h, with the mean h of class c's training nodes and
one covariance shared by all classes (global similarity). Agreement is the share of neighbours with the same predicted
class, and the relative degree is the node's degree over its neighbours' mean degree (local similarity, how a node
moves under message passing). Then

    T_i = softplus( sum_{j in N(i) + i} a_ij theta . x_j + MLP(x_i) )    a_ij = softmax_j LeakyReLU(z_i . z_j)    z' = z / T
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1, log
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, one_hot, softplus

from graphcal.core import Calibration, Needs, Outputs, fitted_on
from graphcal.graphs import neighbour_agreement, structure
from graphcal.lab.engine.rows import rows_of, softmax_by_row
from graphcal.methods.card import Card
from graphcal.methods.solvers.adam import Weights, adam, uniform
from graphcal.methods.solvers.linear import mean_nll
from graphcal.methods.solvers.node_order import fitting_order, stopping_order
from graphcal.methods.solvers.scaling import scaled

REPRESENTATIONS = ("hidden", "logits")
SHRINKAGE = 0.1  # share of the identity in the covariance


@dataclass(frozen=True)
class SimCalib:
    """Temperatures from a node's distance to the class prototypes and its likeness to its neighbours.

    The learned calibrator that came nearest to the convex ones in our tables, for a hundred times their cost.
    ``representation="logits"`` measures the distances between logits, for outputs without a final representation.
    """

    hidden: int = 16
    lr: float = 0.01
    weight_decay: float = 5e-3
    epochs: int = 2000
    patience: int = 100
    representation: str = "hidden"
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="SimCalib (our reading)",
        formula="T_i = softplus(sum_j a_ij theta . x_j + MLP(x_i)); x: logits, prototype distances, agreement, degree",
        paper="Tang et al., SimCalib: Graph Neural Network Calibration based on Similarity between Nodes, AAAI 2024, "
        "arXiv:2312.11858",
        parameters="theta and MLP 2 C + 2 -> 16 -> 1: about 34 C + 70",
        cost="fit: up to 2,000 full-batch Adam steps on the edges of the fitted nodes; apply: O(E C + N D^2)",
        keeps_predictions=True,
        minimises_nll=True,
        graph=True,
        final_layer=True,
        labels="the nodes it is fitted on and the training nodes (class prototypes)",
        departures="the wiring of the parts is ours; the covariance is shrunk towards a multiple of the identity, because there "
        "are fewer training nodes than h has dimensions; a class without training nodes takes the mean of all",
    )

    def __post_init__(self) -> None:
        if self.representation not in REPRESENTATIONS:
            raise ValueError(f"representation must be one of {', '.join(REPRESENTATIONS)}; got {self.representation!r}")

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> SimilarityTemperature:
        """The weights of least NLL on the nodes ``stop`` (or ``on``) along Adam's way down that of the nodes ``on``."""
        nodes = fitting_order(out, on)
        whitening, prototypes = class_prototypes(out, self.representation)
        x = describe(out, self.representation, whitening, prototypes)  # (N, F)
        generator = torch.Generator().manual_seed(self.seed)
        size = x.shape[1]
        start = {
            "theta": 0.1 * uniform((size,), size**-0.5, generator, x),
            "w1": uniform((size, self.hidden), size**-0.5, generator, x),
            "b1": x.new_zeros(self.hidden),
            "w2": 0.1 * uniform((self.hidden,), self.hidden**-0.5, generator, x),
            "b2": x.new_full((1,), log(expm1(1.0))),  # T starts near 1
        }

        def nll(of: Tensor) -> Callable[[Weights], Tensor]:
            row, col, attention = attention_into(out, of)
            read, column = torch.unique(col, return_inverse=True)
            z, y, features, others = out.logits[of], out.graph.y[of], x[of], x[read]
            return lambda w: mean_nll(z / temperatures(features, others, row, column, attention, w)[:, None], y)

        fitted = adam(
            start,
            nll(nodes),
            None if stop is None else nll(stopping_order(out, stop, nodes)),
            lr=self.lr,
            epochs=self.epochs,
            patience=self.patience,
            weight_decay=dict.fromkeys(("theta", "w1", "w2"), self.weight_decay),
        )
        return SimilarityTemperature(
            **fitted,
            whitening=whitening,
            prototypes=prototypes,
            representation=self.representation,
            **fitted_on(out, on),
        )


def representation_of(out: Outputs, kind: str) -> Tensor:
    if kind == "logits":
        return out.logits
    if out.final_representation is None:
        raise ValueError(
            "SimCalib measures distances in the final representation h, but only logits are known: use observe(model, data), or "
            "SimCalib(representation='logits')"
        )
    return out.final_representation


def class_prototypes(out: Outputs, kind: str) -> tuple[Tensor, Tensor]:
    """The whitening matrix (D, D) of the shared covariance, and the class means in whitened space (C, D)."""
    train = out.graph.get("train_mask")
    if train is None or not train.any():
        raise ValueError("SimCalib needs class prototypes, but the graph has no train_mask that selects training nodes")
    h, y = representation_of(out, kind)[train].double(), out.graph.y[train]
    member = one_hot(y, out.num_classes).double()  # (n, C)
    count = member.sum(0)[:, None]
    means = torch.where(count > 0, member.T @ h / count.clamp(min=1), h.mean(0))  # (C, D)
    within = h - means[y]
    covariance = within.T @ within / len(h)
    level = covariance.diagonal().mean().clamp(min=1e-12)
    identity = torch.eye(len(covariance), dtype=h.dtype, device=h.device)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * level * identity
    whitening = torch.linalg.inv(torch.linalg.cholesky(shrunk)).T  # distance^2 = |(h - mean) whitening|^2
    return whitening.to(out.logits), (means @ whitening).to(out.logits)


def describe(out: Outputs, kind: str, whitening: Tensor, prototypes: Tensor) -> Tensor:
    """x of every node."""  # (N, 2 C + 2)
    graph, z = structure(out.graph), out.logits
    low, high = z.min(-1, keepdim=True).values, z.max(-1, keepdim=True).values
    unit = ((z - low) / (high - low).clamp(min=torch.finfo(z.dtype).tiny)).sort(-1).values
    distance = torch.cdist(representation_of(out, kind).to(z) @ whitening.to(z), prototypes.to(z))
    near = (distance / whitening.shape[0] ** 0.5).sort(-1).values.log1p()  # about 1 / sqrt(D) of a typical distance
    agreement = neighbour_agreement(out.pred, graph).to(z)
    degree = graph.degree.to(z.dtype)
    relative = ((1 + degree) / (1 + graph.neighbour_mean(degree))).log()
    return torch.cat([unit, near, agreement[:, None], relative[:, None]], -1)


def attention_into(out: Outputs, of: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Edges into the nodes ``of``, with self loops: row counted from 0, source node, attention a_ij."""
    row, col, _ = rows_of(structure(out.graph).adjacency, of)
    score = leaky_relu((out.logits[of[row]] * out.logits[col]).sum(-1), 0.2)
    return row, col, softmax_by_row(score, row, len(of))


def temperatures(features: Tensor, others: Tensor, row: Tensor, col: Tensor, attention: Tensor, w: Weights) -> Tensor:
    """T (n,)"""
    heard = features.new_zeros(len(features)).index_add(0, row, attention * (others @ w["theta"])[col])
    alone = (features @ w["w1"] + w["b1"]).relu() @ w["w2"] + w["b2"]
    return softplus(heard + alone).clamp(min=1e-3)


class SimilarityTemperature(Calibration):
    """Calibration fitted by `SimCalib`."""

    needs = Needs(edges=True, hidden=True, whole_graph=True)

    theta: Tensor  # (F,)
    w1: Tensor  # (F, 16)
    b1: Tensor  # (16,)
    w2: Tensor  # (16,)
    b2: Tensor  # (1,)
    whitening: Tensor  # (D, D)
    prototypes: Tensor  # (C, D)
    representation: str

    def temperature(self, out: Outputs) -> Tensor:
        """T of every node."""  # (N,)
        x = describe(out, self.representation, self.whitening, self.prototypes)
        row, col, attention = attention_into(out, torch.arange(out.num_nodes, device=x.device))
        weights = {name: self.get_buffer(name).to(x) for name in ("theta", "w1", "b1", "w2", "b2")}
        return temperatures(x, x, row, col, attention, weights)

    def forward(self, out: Outputs) -> Tensor:
        return scaled(out.logits, 1 / self.temperature(out))
