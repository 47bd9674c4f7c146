"""0.1's graph-aware form without its pull, an ablation: what is left when SCAR's part is taken away.

    z'_n = s_n z_n,   s_n = x_n . a        x_n as in graph-scar: a constant and eight standardised features of the node

The fit is graph-scar's: convex in a, a ridge on the coefficients of features, its strength by leave-one-out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Outputs, fitting_nodes
from graphcal.lab.paper.quirks.graph_scar import (
    ENOUGH_PER_PARAMETER,
    RIDGES,
    GraphPull,
    GraphSCAR,
    best_ridge,
    design_matrix,
    identity_coefficients,
    node_features,
)
from graphcal.methods.card import Card
from graphcal.methods.scar import ScarObjective, final_layer_of
from graphcal.methods.solvers.linear import fit_linear, loo_logits


@dataclass(frozen=True)
class GraphScaleAlone:
    """Scale each node's logits by an amount that is linear in eight label-free features of its neighbourhood."""

    card: ClassVar[Card] = replace(
        GraphSCAR.card,
        title="graph-scar without its pull (ours)",
        formula="z' = s z; s linear in eight features of the node",
        parameters="s: 9 under a ridge",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> GraphPull:
        """The coefficients of least validation NLL under the ridge that leave-one-out chooses; ``stop`` is not used."""
        objective = ScarObjective(out, fitting_nodes(out, on), temperature=True)
        features = node_features(out)[on]
        mean, std = features.mean(0), features.std(0, correction=0)
        std = torch.where(std > 1e-6, std, torch.ones_like(std))
        design = design_matrix(features, mean, std)  # (n, 9)
        scale, loo_nll = _scale_coefficients(objective, design)
        final, like = final_layer_of(out), out.logits

        def scaled(scale: Tensor, note: str = "") -> GraphPull:
            return GraphPull(
                scale=scale.to(like), pull=torch.zeros_like(scale).to(like), mean=mean.to(like), std=std.to(like),
                gram=final.gram.to(like), bias=final.bias.to(like), guarded=True, note=note,
                num_classes=out.num_classes,
            )  # fmt: skip

        fitted = scaled(scale)
        note = objective.rejection(loo_nll, fitted.pulled(like[on], out.pred[on], design)[0])
        return scaled(identity_coefficients(scale), note) if note else fitted


def _scale_coefficients(objective: ScarObjective, design: Tensor) -> tuple[Tensor, float]:
    """a (9,), and its leave-one-out NLL."""
    base = torch.zeros_like(objective.z)
    terms = design[:, None, :] * objective.z[:, :, None]  # (n, C, 9)
    start = identity_coefficients(terms[0, 0])
    start[:1] = fit_linear(base, terms[:, :, :1], objective.target, start=start[:1], precision=1e-8)
    if len(base) < ENOUGH_PER_PARAMETER * len(start):
        return start, objective.nll(loo_logits(base, terms[:, :, :1], objective.target, start[:1]))
    held = torch.ones_like(start)
    held[0] = 0.0
    best = best_ridge(base, terms, objective.target, start, held, RIDGES)
    return best.theta, best.loo_nll
