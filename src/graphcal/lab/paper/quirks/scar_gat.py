"""SCAR's node level as its official GAT code has it: not Eq. 10 of the paper (arXiv:2505.11335).

The code moves x, the *un-aggregated* input of the last layer, and runs the whole attention layer again:

    x <- w W[:, y_hat] + (1 - w) x        w = alpha next to the training set, beta elsewhere, 0 on it

Attention changes and a node's shift leaks to its neighbours, so predictions may change. For reproduction only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Needs, Outputs, fitted_on, fitting_nodes
from graphcal.graphs import MemorySums, structure
from graphcal.lab.models.gat import GATReplicas
from graphcal.lab.models.replicas import ModelOnGraph
from graphcal.methods.card import Card
from graphcal.methods.scar import pull_weights, side_of_training


@dataclass(frozen=True)
class SCARofGATCode:
    """Move the input of the last attention layer towards the predicted centroid, and attend again."""

    alpha: float = 1e-4
    beta: float = 1e-3

    card: ClassVar[Card] = Card(
        title="SCAR, official GAT code",
        formula="x <- w W[:, y_hat] + (1 - w) x, then the last attention layer; w = alpha or beta",
        paper="The official code of arXiv:2505.11335",
        parameters="alpha, beta: given",
        cost="fit: none; apply: one attention layer",
        keeps_predictions=False,
        graph=True,
        model=True,
        departures="from the paper: the mix comes before the attention, not after",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> MixBeforeAttention:
        """Nothing is fitted: both weights are given."""
        fitting_nodes(out, on)
        alpha, beta = out.logits.new_tensor([self.alpha, self.beta])
        return MixBeforeAttention(alpha=alpha, beta=beta, **fitted_on(out, on))


class MixBeforeAttention(Calibration):
    """Calibration returned by `SCARofGATCode`."""

    alpha: Tensor  # ()
    beta: Tensor  # ()

    needs = Needs(edges=True, training=True, whole_graph=True)

    def forward(self, out: Outputs) -> Tensor:
        handle = out.model
        gat = handle.replicas if isinstance(handle, ModelOnGraph) else None
        if not isinstance(gat, GATReplicas) or gat.backbone.output_heads != 1 or not isinstance(handle, ModelOnGraph):
            raise ValueError(
                "scar-gat-code runs the last attention layer again: it needs the outputs of graphcal.lab.train with backbone "
                "'gat' and one output head"
            )
        side = side_of_training(MemorySums(structure(out.graph)))[:, 0]
        w = pull_weights(side, self.alpha, self.beta)
        field = handle.full_graph()
        with torch.no_grad():
            x = gat.hidden(field, None)  # (1, N, D)
            pred = gat.last_layer(x, field)[0].argmax(-1)
            centroid = gat.head.weight[0].T[pred]  # (N, D)
            w = w.to(x)[:, None]
            return gat.last_layer(w * centroid + (1 - w) * x, field)[0].log_softmax(-1)
