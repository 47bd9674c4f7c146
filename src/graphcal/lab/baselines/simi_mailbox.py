"""Simi-Mailbox (Seo et al., AAAI 2025, arXiv:2412.14223): one temperature for each group of alike nodes.

A node is described by its confidence and by how similar its neighbours' logits are to its own,

    m_i = ( conf_i,  mean over neighbours j of sigmoid(z_i . z_j) )        each scaled to [0, 1]

k-means puts all nodes into groups, near each other in the graph or not. Each group g gets the scale s_g = 1/T_g that minimises

    1/n sum_{i in g} NLL_i(s_g) + balance (mean conf - accuracy)^2 + shrink / (2 n) log^2(s_g / s)

over its fitted nodes; s is the scale of temperature scaling. Groups do not share anything else, so each is one number
found by a search that narrows around the best of a grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphcal.core import Calibration, Needs, Outputs, fitted_on, fitting_nodes
from graphcal.graphs import structure
from graphcal.methods.card import Card
from graphcal.methods.solvers.linear import mean_nll
from graphcal.methods.solvers.scaling import scaled
from graphcal.methods.temperature import fit_scale


@dataclass(frozen=True)
class SimiMailbox:
    """Group nodes by confidence and neighbourhood similarity; one temperature per group.

    Where nodes of one kind are over-confident and of another under-confident; it needs validation nodes in every group.
    """

    groups: int = 10
    balance: float = 1.0
    shrink: float = 10.0
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="Simi-Mailbox",
        formula="z' = s_g z, g = k-means group of (conf, mean_j sigmoid(z_i . z_j))",
        paper="Seo et al., Towards Precise Prediction Uncertainty in GNNs, AAAI 2025, arXiv:2412.14223",
        parameters="s: one per group (10); 10 group centres",
        cost="fit: k-means on N points and a line search per group; apply: O(E C + N groups)",
        keeps_predictions=True,
        graph=True,
        departures="only fitted nodes' labels are read; a public version of the authors' code averages a group's accuracy over "
        "all its nodes, test labels included, and stops on the ECE of the evaluated nodes, so its figures are not comparable. "
        "The shrinkage (a group without fitted nodes takes the common scale), the exact search, the number of groups and the "
        "weight of the balance are ours",
    )

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ValueError(f"groups must be at least 1; got {self.groups}")

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> GroupScales:
        """Groups of all nodes, and the scale of least balanced NLL for each on its nodes in ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        points = mailbox(out)  # (N, 2)
        low, high = points.min(0).values, points.max(0).values
        span = (high - low).clamp(min=torch.finfo(points.dtype).tiny)
        centres = group_centres((points - low) / span, self.groups, self.seed)
        group = nearest((points - low) / span, centres)[on]
        z, y = out.logits[on].double(), out.graph.y[on]
        common = fit_scale(z, y)
        scales = torch.stack(
            [common * self._relative_scale(common * z[group == g], y[group == g], len(z)) for g in range(len(centres))]
        )
        scales = scales.flatten().to(out.logits)
        return GroupScales(scales=scales, centres=centres, low=low, span=span, **fitted_on(out, on))

    def _relative_scale(self, z: Tensor, y: Tensor, nodes: int) -> Tensor:
        """The factor exp(u) on the common scale; u in [-4, 4] is searched on a grid that narrows five times."""
        centre, width = 0.0, 4.0
        if len(z) == 0:
            return torch.ones((), dtype=torch.double)
        accuracy = (z.argmax(-1) == y).double().mean()
        for _ in range(6):
            u = centre + width * torch.linspace(-1, 1, 33, dtype=torch.double)
            moved = u.exp()[:, None, None] * z  # (33, n_g, C)
            loss = torch.stack([mean_nll(m, y) for m in moved]) * len(z) / nodes
            conf = moved.softmax(-1).max(-1).values.mean(-1)
            value = loss + self.balance * (conf - accuracy).square() + self.shrink / (2 * nodes) * u.square()
            centre, width = float(u[value.argmin()]), width / 12
        return torch.tensor(centre, dtype=torch.double).exp()


def mailbox(out: Outputs) -> Tensor:
    """(conf, mean neighbour similarity); a node without neighbours is compared with itself."""  # (N, 2)
    graph, z = structure(out.graph), out.logits
    row, col = graph.edge_index
    alike = (z[row] * z[col]).sum(-1).sigmoid()
    total = z.new_zeros(out.num_nodes).index_add_(0, row, alike)
    self_similarity = z.square().sum(-1).sigmoid()
    similarity = torch.where(graph.degree > 0, total / graph.degree.clamp(min=1), self_similarity)
    return torch.stack([z.softmax(-1).max(-1).values, similarity], -1)


def group_centres(points: Tensor, groups: int, seed: int) -> Tensor:
    """k-means centres. Points are sorted first: the centres do not depend on how nodes are numbered."""  # (G, 2)
    from sklearn.cluster import KMeans

    values = points.double().cpu().numpy()
    values = values[np.lexsort(values.T)]
    few = min(groups, len(np.unique(values, axis=0)))
    clusters = KMeans(n_clusters=few, random_state=seed, n_init=1).fit(values)
    return torch.from_numpy(clusters.cluster_centers_).to(points)


def nearest(points: Tensor, centres: Tensor) -> Tensor:
    return torch.cdist(points, centres).argmin(-1)


class GroupScales(Calibration):
    """Calibration fitted by `SimiMailbox`."""

    needs = Needs(edges=True, whole_graph=True)

    scales: Tensor  # (G,)
    centres: Tensor  # (G, 2)
    low: Tensor  # (2,) of the graph it was fitted on
    span: Tensor  # (2,)

    def forward(self, out: Outputs) -> Tensor:
        points = (mailbox(out) - self.low.to(out.logits)) / self.span.to(out.logits)
        return scaled(out.logits, self.scales[nearest(points, self.centres.to(points))])
