"""WATS, wavelet-aware temperature scaling (Li et al., ICLR 2026): a node's temperature from the shape of its neighbourhood.

The signal is the log-degree. With S = D^-1/2 A D^-1/2 the rescaled Laplacian is L - I = -S, and the heat kernel exp(-s L) is a
Chebyshev series in it:

    exp(-s L) = sum_k c_k T_k(-S)        c_0 = e^-s I_0(s),  c_k = 2 (-1)^k e^-s I_k(s)
    x_i = the K + 1 terms c_k T_k(-S) log(1 + degree) at node i, divided by their l1 norm
    T_i = softplus(MLP(x_i))        z'_i = z_i / T_i

Without ``stop`` the training nodes decide when to stop, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1, log
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from graphcal.core import Calibration, Needs, Outputs, fitted_on
from graphcal.graphs import Structure, csr, structure
from graphcal.methods.card import Card
from graphcal.methods.solvers.adam import Weights, adam, dropout, uniform
from graphcal.methods.solvers.linear import mean_nll
from graphcal.methods.solvers.node_order import fitting_order, stopping_order, training_nodes
from graphcal.methods.solvers.scaling import scaled


@dataclass(frozen=True)
class WATS:
    """A small network reads heat-kernel wavelets of the node degrees and gives each node a temperature.

    Where miscalibration follows the degree; it reads neither the logits nor the predictions of the neighbours.
    """

    order: int = 3  # K
    scale: float = 2.0  # s
    hidden: int = 64
    dropout: float = 0.3
    lr: float = 0.01
    weight_decay: float = 0.0
    epochs: int = 1000
    patience: int = 50
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="WATS",
        formula="T_i = softplus(MLP(x_i)), x_i = heat-kernel Chebyshev terms of log(1 + degree); p = softmax(z / T)",
        paper="Li et al., WATS: Wavelet-Aware Temperature Scaling for Calibrating Graph Neural Networks, ICLR 2026",
        parameters="MLP 4 -> 64 -> 1: 385",
        cost="fit: three sparse products and up to 1,000 Adam steps on the fitted nodes; apply: three sparse products",
        keeps_predictions=True,
        graph=True,
        labels="the nodes it is fitted on; the training nodes decide when to stop",
        departures="the sign (-1)^k, which the series needs, is missing in the official code; T starts at 1; weight decay acts "
        "on the matrices only",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> WaveletTemperature:
        """The network of least NLL on the nodes ``stop`` (or training nodes) along Adam's way down that of the nodes ``on``."""
        nodes = fitting_order(out, on)
        x = wavelets(structure(out.graph), self.order, self.scale, out.logits.dtype)  # (N, K + 1)
        generator = torch.Generator().manual_seed(self.seed)
        start = {
            "w1": uniform((self.order + 1, self.hidden), (self.order + 1) ** -0.5, generator, x),
            "b1": uniform((self.hidden,), (self.order + 1) ** -0.5, generator, x),
            "w2": uniform((self.hidden, 1), 0.1 * self.hidden**-0.5, generator, x),
            "b2": x.new_full((1,), log(expm1(1.0))),
        }

        def nll(of: Tensor, rate: float) -> Callable[[Weights], Tensor]:
            z, y, inputs = out.logits[of], out.graph.y[of], x[of]
            return lambda w: mean_nll(z / temperatures(inputs, w, rate, generator), y)

        watched = stopping_order(out, training_nodes(out) if stop is None else stop, nodes)
        fitted = adam(
            start,
            nll(nodes, self.dropout),
            nll(watched, 0.0),
            lr=self.lr,
            epochs=self.epochs,
            patience=self.patience,
            weight_decay={"w1": self.weight_decay, "w2": self.weight_decay},
        )
        return WaveletTemperature(**fitted, order=self.order, heat=self.scale, **fitted_on(out, on))


def temperatures(x: Tensor, w: Weights, rate: float, generator: torch.Generator) -> Tensor:
    """T (n, 1)"""
    hidden = dropout((x @ w["w1"] + w["b1"]).relu(), rate, generator)
    return softplus(hidden @ w["w2"] + w["b2"]).clamp(min=1e-3)


def wavelets(graph: Structure, order: int, heat: float, dtype: torch.dtype) -> Tensor:
    """The terms of exp(-heat L) log(1 + degree), divided by their l1 norm."""  # (N, K + 1)
    from scipy.special import ive  # e^-s I_k(s)

    row, col = graph.edge_index
    degree = graph.degree.double()
    root = degree.clamp(min=1).rsqrt()
    minus = csr(row, col, -root[row] * root[col], (graph.num_nodes, graph.num_nodes))  # L - I
    terms = [degree.log1p()[:, None]]  # T_0 x = x
    if order > 0:
        terms.append(minus @ terms[0])  # T_1 x
    for _ in range(order - 1):
        terms.append(2 * (minus @ terms[-1]) - terms[-2])
    weight = [float(ive(k, heat)) * (1 if k == 0 else 2 * (-1) ** k) for k in range(order + 1)]
    columns = torch.cat(terms, -1) * torch.tensor(weight, dtype=torch.double, device=degree.device)
    return (columns / columns.abs().sum(-1, keepdim=True).clamp(min=1e-12)).to(dtype)


class WaveletTemperature(Calibration):
    """Calibration fitted by `WATS`."""

    needs = Needs(edges=True, whole_graph=True)

    w1: Tensor  # (K + 1, hidden)
    b1: Tensor  # (hidden,)
    w2: Tensor  # (hidden, 1)
    b2: Tensor  # (1,)
    order: int
    heat: float

    def temperature(self, out: Outputs) -> Tensor:
        """T of every node."""  # (N,)
        if self.w1.shape[0] != self.order + 1:
            raise ValueError(
                f"wavelets of order {self.order} have {self.order + 1} terms, the network takes {self.w1.shape[0]}"
            )
        x = wavelets(structure(out.graph), self.order, self.heat, out.logits.dtype)
        buffers = {name: w.to(out.logits) for name, w in self.named_buffers()}
        return temperatures(x, buffers, 0.0, torch.Generator()).squeeze(-1)

    def forward(self, out: Outputs) -> Tensor:
        return scaled(out.logits, 1 / self.temperature(out))
