"""DC-GNN: a calibration GNN that also sees how much a node agrees with its neighbours. *Our reading.*

Neither text nor code of the method was found; what is known is that a same-class-neighbour ratio that counts the node
itself enters a calibration GNN which gives node-wise temperatures and aims at telling right from wrong predictions.
So this is CaGCN, its scale, its loss and its settings, on two more columns:

    t = GCN([z, ratio, conf])        ratio_i = (1 + neighbours with i's predicted class) / (1 + degree_i)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Needs, Outputs, fitted_on
from graphcal.graphs import neighbour_agreement, structure
from graphcal.lab.baselines.cagcn import NodeScaleSettings, fit_node_scale, scale_of_every_node
from graphcal.methods.card import Card
from graphcal.methods.solvers.scaling import scaled


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


class AgreementScaleGCN(Calibration):
    """Calibration fitted by `DCGNN`."""

    needs = Needs(edges=True, whole_graph=True)

    w1: Tensor  # (C + 2, 16)
    b1: Tensor  # (16,)
    w2: Tensor  # (16, 1)
    b2: Tensor  # (1,)

    def forward(self, out: Outputs) -> Tensor:
        return scaled(out.logits, scale_of_every_node(self, out, inputs_of(out)))
