"""Variants of SCAR with other ways to choose alpha and beta, for the paper's tables.

scar-grid       the paper's search: every alpha < beta of a grid, the pair of least validation NLL
scar-no-guard   without the cap that keeps predictions: Eq. 10 as it stands
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Outputs, fitting_nodes
from graphcal.graphs import structure
from graphcal.methods.card import Card
from graphcal.methods.scar import SCAR, CentroidPull, ScarObjective, centroid_pull, fit_pull
from graphcal.methods.solvers.linear import mean_nll

GRID = (0.0, *(m * 10.0**e for e in range(-8, -2) for m in (1.0, 2.0, 5.0)))  # to 5e-3: what the paper's tables span


@dataclass(frozen=True)
class SCARGrid:
    """SCAR's two weights by the paper's search: alpha < beta on a grid."""

    card: ClassVar[Card] = replace(
        SCAR.card,
        title="SCAR, the paper's grid",
        parameters="alpha < beta: the best of 171 pairs",
        cost="fit: 171 evaluations on the fitted nodes; apply: O(N C)",
        minimises_nll=False,
        departures="by validation NLL, where the paper does not say by what; capped where a prediction would change",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> CentroidPull:
        """The best pair of the grid on the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        objective = ScarObjective(out, on)
        near = structure(out.graph).next_to_training[on]
        pairs = torch.tensor([(a, b) for a in GRID for b in GRID if a < b], dtype=torch.double)
        moved = (objective.z + torch.where(near, a, b)[:, None] * objective.direction for a, b in pairs)
        losses = [float(mean_nll(z, objective.y)) for z in moved]
        return centroid_pull(out, on, pairs[min(range(len(pairs)), key=losses.__getitem__)])


@dataclass(frozen=True)
class SCARWithoutGuard:
    """SCAR's two weights without the cap that keeps predictions: Eq. 10 as it stands."""

    alpha: float | None = None  # None: fitted
    beta: float | None = None

    card: ClassVar[Card] = replace(
        SCAR.card,
        title="SCAR without the guard",
        parameters="alpha, beta: 2",
        keeps_predictions=False,
        departures="fitted exactly instead of on a grid; fitted weights may be negative",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> CentroidPull:
        """The weights of least validation NLL on the nodes ``on``, where they are not given; ``stop`` is not used."""
        return fit_pull(out, on, self.alpha, self.beta, guarded=False)
