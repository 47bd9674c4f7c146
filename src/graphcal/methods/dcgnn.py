"""DC-GNN: a calibration GNN that also sees how much a node agrees with its neighbours. *Our reading.*

Neither text nor code of the method was found; what is known is that a same-class-neighbour ratio that counts the node
itself enters a calibration GNN which gives node-wise temperatures and aims at telling right from wrong predictions.
So this is CaGCN with two more input columns and its margin term:

    t = GCN([z, ratio, conf])        ratio_i = (1 + neighbours with i's predicted class) / (1 + degree_i)
    s = log(exp(t) + 1.1)        z' = s z        loss = CE + 0.5 margin

Departures: all of it is a reading, not a reproduction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs
from graphcal.engine.scaling import scaled
from graphcal.graphs import neighbour_agreement, structure
from graphcal.methods.cagcn import CaGCN, fit_node_scale, node_scale
from graphcal.methods.card import Card


@dataclass(frozen=True)
class DCGNN:
    """A node-wise scale from a GCN on logits, neighbour agreement and confidence."""

    hidden: int = 16
    dropout: float = 0.5
    lr: float = 0.01
    weight_decay: float = 5e-3
    margin: float = 0.5
    epochs: int = 2000
    patience: int = 100
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="DC-GNN (our reading)",
        idea="CaGCN that also reads the share of agreeing neighbours and the confidence.",
        formula="z' = log(exp(t) + 1.1) z, t = GCN([z, ratio, conf])",
        paper="as cited by SCAR (arXiv:2505.11335); no text or code found",
        parameters="GCN C + 2 -> 16 -> 1: 16 C + 65",
        cost="fit: up to 2,000 full-batch Adam steps on the neighbourhood of the fitted nodes; apply: two sparse products",
        keeps_predictions=True,
        graph=True,
        departures="our reading of a method whose text was not found: CaGCN with two more input columns",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> AgreementScaleGCN:
        as_cagcn = CaGCN(
            hidden=self.hidden,
            dropout=self.dropout,
            lr=self.lr,
            weight_decay=self.weight_decay,
            margin=self.margin,
            epochs=self.epochs,
            patience=self.patience,
            seed=self.seed,
        )
        return AgreementScaleGCN(**fit_node_scale(as_cagcn, out, inputs_of(out), on, stop))


def inputs_of(out: Outputs) -> Tensor:
    """[z, ratio, conf]"""  # (N, C + 2)
    facts = structure(out.graph)
    same = neighbour_agreement(out.pred, facts) * facts.degree
    ratio = ((1 + same) / (1 + facts.degree)).to(out.logits)
    conf = out.logits.softmax(-1).max(-1).values
    return torch.cat([out.logits, ratio[:, None], conf[:, None]], -1)


class AgreementScaleGCN(Calibration):
    w1: Tensor  # (C + 2, 16)
    b1: Tensor  # (16,)
    w2: Tensor  # (16, 1)
    b2: Tensor  # (1,)

    def forward(self, out: Outputs) -> Tensor:
        weights = {name: w.to(out.logits) for name, w in self.named_buffers()}
        return scaled(out, node_scale(out, inputs_of(out), weights, "cagcn"))
