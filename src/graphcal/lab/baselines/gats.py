"""GATS, graph attention temperature scaling (Hsu et al., NeurIPS 2022, arXiv:2210.06391).

    T_i = 1/H sum_h softplus( w dc_i + sum_{j in N(i) + i} a_ij g_j tau_j^h ) + T_0        z'_i = z_i / T_i

    tau_j^h = theta_h . sort(z_j scaled to [0, 1])
    a_ij    = softmax over j of LeakyReLU(z_i . z_j / (g_i g_j))
    dc_i    = mean over j of (conf_i - conf_j)
    g       = one learnt number on training nodes, another next to them, 1 elsewhere

Weight decay acts on everything that is learnt, as in the official code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, softplus

from graphcal.core import Calibration, Needs, Outputs, fitted_on
from graphcal.graphs import structure
from graphcal.lab.engine.rows import rows_of, softmax_by_row
from graphcal.methods.card import Card
from graphcal.methods.solvers.adam import Weights, adam, uniform
from graphcal.methods.solvers.linear import mean_nll
from graphcal.methods.solvers.node_order import fitting_order, stopping_order
from graphcal.methods.solvers.scaling import scaled

LOGARITHMS = ("log_bias", "log_train", "log_near")


@dataclass(frozen=True)
class GATS:
    """Each node's temperature is an attention-weighted sum over its neighbours, aware of the training set.

    A few dozen parameters that read the neighbourhood and the distance from the training set; slower than the convex calibrators
    by a factor of a hundred.
    """

    heads: int = 8
    bias: float = 1.0  # T_0 at the start
    lr: float = 0.01
    weight_decay: float = 5e-3
    epochs: int = 2000
    patience: int = 100
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="GATS",
        formula="T_i = mean_h softplus(w dc_i + sum_j a_ij g_j theta_h . sort(z_j)) + T_0; p = softmax(z / T)",
        paper="Hsu et al., What Makes Graph Neural Networks Miscalibrated?, NeurIPS 2022, arXiv:2210.06391",
        parameters="theta: 8 C; w, T_0, two g: 4",
        cost="fit: up to 2,000 full-batch Adam steps on the edges of the fitted nodes; apply: O(E C)",
        keeps_predictions=True,
        minimises_nll=True,
        graph=True,
        departures="T_0 and the two g are exponentials of what is learnt, so temperatures stay positive (in the official code "
        "they are free, and a temperature can turn negative); a node whose logits are all equal has tau = 0, not a "
        "division by zero",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> AttentionTemperature:
        """The weights of least NLL on the nodes ``stop`` (or ``on``) along Adam's way down that of the nodes ``on``."""
        nodes = fitting_order(out, on)
        generator = torch.Generator().manual_seed(self.seed)
        glorot = (6 / (out.num_classes + self.heads)) ** 0.5
        zero = out.logits.new_zeros(())
        start = {
            "theta": uniform((out.num_classes, self.heads), glorot, generator, out.logits),
            "w": zero,
            "log_bias": zero + log(self.bias),
            "log_train": zero,
            "log_near": zero,
        }

        def nll(of: Tensor) -> Callable[[Weights], Tensor]:
            inputs, z, y = edge_inputs(out, of), out.logits[of], out.graph.y[of]
            return lambda weights: mean_nll(z / temperatures(inputs, weights)[:, None], y)

        fitted_nll = nll(nodes)

        def loss(weights: Weights) -> Tensor:
            """Loss with the decay of T_0 and g themselves, not of the learnt logarithms."""
            decayed = torch.stack([weights[name].exp() for name in LOGARITHMS]).square().sum()
            return fitted_nll(weights) + 0.5 * self.weight_decay * decayed

        fitted = adam(
            start,
            loss,
            fitted_nll if stop is None else nll(stopping_order(out, stop, nodes)),
            lr=self.lr,
            epochs=self.epochs,
            patience=self.patience,
            weight_decay={"theta": self.weight_decay, "w": self.weight_decay},
        )
        return AttentionTemperature(**fitted, **fitted_on(out, on))


def edge_inputs(out: Outputs, of: Tensor) -> dict[str, Tensor]:
    """Constants of the fit: the edges into the nodes ``of`` and their values."""
    graph = structure(out.graph)
    row, col, _ = rows_of(graph.adjacency, of)  # with the self loop
    z, read = out.logits, torch.unique(col)
    low, high = z[read].min(-1, keepdim=True).values, z[read].max(-1, keepdim=True).values
    position = torch.zeros(out.num_nodes, dtype=torch.long, device=z.device)
    position[read] = torch.arange(len(read), device=z.device)
    conf = z.softmax(-1).max(-1).values
    gap = z.new_zeros(len(of)).index_add_(0, row, conf[of[row]] - conf[col])
    count = z.new_zeros(len(of)).index_add_(0, row, torch.ones_like(row, dtype=z.dtype))
    group = graph.next_to_training.long() + 2 * graph.train_mask.long()  # 0 elsewhere, 1 near, 2 train
    return {
        "row": row,
        "col": position[col],
        "dot": (z[of[row]] * z[col]).sum(-1),  # (e,) z_i . z_j
        "sorted": ((z[read] - low) / (high - low).clamp(min=torch.finfo(z.dtype).tiny)).sort(-1).values,  # (r, C)
        "gap": gap / count,  # (n,) dc
        "group_of_row": group[of[row]],
        "group_of_col": group[col],
    }


def temperatures(inputs: dict[str, Tensor], w: Weights) -> Tensor:
    """T (n,)"""
    row, col = inputs["row"], inputs["col"]
    g = torch.stack([torch.zeros_like(w["w"]), w["log_near"], w["log_train"]]).exp()  # (3,)
    g_row, g_col = g[inputs["group_of_row"]], g[inputs["group_of_col"]]
    score = leaky_relu(inputs["dot"] / (g_row * g_col), 0.2)  # (e,)
    attention = softmax_by_row(score, row, len(inputs["gap"])) * g_col
    tau = (inputs["sorted"] @ w["theta"])[col]  # (e, H)
    total = torch.zeros(len(inputs["gap"]), tau.shape[1], dtype=tau.dtype, device=tau.device)
    total = total.index_add(0, row, attention[:, None] * tau)
    return softplus(total + (w["w"] * inputs["gap"])[:, None]).mean(-1) + w["log_bias"].exp()


class AttentionTemperature(Calibration):
    """Calibration fitted by `GATS`."""

    needs = Needs(edges=True, training=True, whole_graph=True)

    theta: Tensor  # (C, H)
    w: Tensor  # ()
    log_bias: Tensor  # ()
    log_train: Tensor  # ()
    log_near: Tensor  # ()

    def temperature(self, out: Outputs) -> Tensor:
        """T of every node."""  # (N,)
        everyone = torch.arange(out.num_nodes, device=out.logits.device)
        weights = {name: self.get_buffer(name).to(out.logits) for name in ("theta", "w", *LOGARITHMS)}
        return temperatures(edge_inputs(out, everyone), weights)

    def forward(self, out: Outputs) -> Tensor:
        return scaled(out.logits, 1 / self.temperature(out))
