"""SCAR with a weight for each distance from the training set, asked for by its reviewers.

    z' = z + w_d (t - z)        d = 1, 2, 3 or more, unreachable

Each weight is shrunk to the pooled one by a ridge as strong as the curvature of 30 nodes, so a distance that few nodes speak for
takes the common weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphcal.core import Calibration, Needs, Outputs, fitted_on, fitting_nodes
from graphcal.graphs import UNREACHABLE, structure
from graphcal.methods.card import Card
from graphcal.methods.scar import FEW_NODES, SCAR, ScarObjective, centroid_logits, final_layer_of, guarded_pull

HOPS = 4  # distances 1, 2, 3 and more, unreachable


@dataclass(frozen=True)
class SCARPerHop:
    """Move each node towards the centroid of its predicted class, by a weight for each distance from the training set."""

    card: ClassVar[Card] = replace(
        SCAR.card,
        title="SCAR, a weight for each hop",
        formula="z' = z + w (G[:, y_hat] + b - z), G = W^T W of the final layer; w by distance 1, 2, 3+, unreachable",
        parameters="w: 4 under a ridge",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> HopPull:
        """The weights of least validation NLL on the nodes ``on`` under the ridge; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        objective = ScarObjective(out, on)
        columns = hop_columns(out)[on]  # (n, 4)
        pooled, _ = objective.minimise(torch.ones_like(columns[:, :1]))
        push = objective.direction
        p = (objective.z + pooled * push).softmax(-1)
        curvature = ((p * push.square()).sum(-1) - (p * push).sum(-1).square()).mean()
        ridge = (curvature * FEW_NODES / len(columns)).repeat(HOPS)
        weights, loo_nll = objective.minimise(columns, ridge=ridge, start=pooled.repeat(HOPS))

        def hop_pull(weights: Tensor, note: str = "") -> HopPull:
            final, like = final_layer_of(out), out.logits
            return HopPull(
                hop_weights=weights.to(like),
                gram=final.gram.to(like),
                bias=final.bias.to(like),
                note=note,
                **fitted_on(out, on),
            )

        fitted = hop_pull(weights)
        note = objective.rejection(loo_nll, fitted.pulled(out.logits[on], out.pred[on], columns)[0])
        return hop_pull(torch.zeros(HOPS), note) if note else fitted


def hop_columns(out: Outputs) -> Tensor:
    """One-hot: the distance of each node from the training set."""  # (N, 4)
    hops = structure(out.graph).hops
    return one_hot(torch.where(hops == UNREACHABLE, HOPS, hops.clamp(1, HOPS - 1)) - 1, HOPS).double()


class HopPull(Calibration):
    """Calibration fitted by `SCARPerHop`."""

    hop_weights: Tensor  # (4,)
    gram: Tensor  # (C, C)
    bias: Tensor  # (C,)
    note: str

    needs = Needs(edges=True, training=True, whole_graph=True)

    def forward(self, out: Outputs) -> Tensor:
        log_probs, _ = self.pulled(out.logits, out.pred, hop_columns(out))
        return torch.where(structure(out.graph).train_mask[:, None], out.logits.log_softmax(-1), log_probs)

    def pulled(self, z: Tensor, pred: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities (n, C) of nodes with logits z, predictions pred and one-hot distances, and w after the cap."""
        t = centroid_logits(self.gram.to(z), self.bias.to(z), pred)
        log_probs, w = guarded_pull(z.T, t, (columns @ self.hop_weights.double()).to(z), pred)
        return log_probs.T, w
