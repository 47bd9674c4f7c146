"""RBS, ratio-binned scaling (Liu et al. 2022, arXiv:2206.01570): one temperature for each level of neighbour agreement.

    r_i = share of node i's neighbours with the same predicted class        B equal bins of [0, 1]        z'_i = s_b(i) z_i

All scales are fitted together; a scale is drawn towards the one of temperature scaling by a ridge worth `shrink` nodes,

    minimise  NLL + shrink / (2 n) sum_b (s_b / s - 1)^2

so a bin with few fitted nodes, or none, takes the common temperature. The problem is convex and solved exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, fitted_on, fitting_nodes
from graphcal.engine.linear import fit_linear
from graphcal.engine.scaling import scaled
from graphcal.graphs import neighbour_agreement, structure
from graphcal.methods.card import Card
from graphcal.methods.temperature import SMALLEST_SCALE, fit_scale


@dataclass(frozen=True)
class RatioBinnedScaling:
    """One temperature for each level of agreement between a node and its neighbours.

    The smallest step from `TemperatureScaling` towards the graph: it needs the edges and no final layer.
    """

    bins: int = 5
    shrink: float = 10.0

    card: ClassVar[Card] = Card(
        title="Ratio-binned scaling",
        formula="z' = s_b z, b the bin of the share of neighbours with the same predicted class",
        paper="Liu et al., On Calibration of Graph Neural Networks for Node Classification, 2022, arXiv:2206.01570",
        parameters="s: one per bin",
        cost="fit: a few Newton steps of B x B systems; apply: O(E + N C)",
        keeps_predictions=True,
        minimises_nll=True,
        graph=True,
        departures="a ridge worth 10 nodes draws bins to the common temperature; the paper fits each alone, which fails for a "
        "bin without fitted nodes",
    )

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise ValueError(f"bins must be at least 1; got {self.bins}")

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> BinnedScales:
        """The scales of least NLL on the nodes ``on`` under the ridge; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        z, y = out.logits[on].double(), out.graph.y[on]
        common = fit_scale(z, y)  # (1,)
        member = torch.nn.functional.one_hot(agreement_bin(agreement(out), self.bins)[on], self.bins).double()  # (n, B)
        terms = z[:, :, None] * member[:, None, :]  # (n, C, B)
        ridge = self.shrink / (len(z) * common**2)
        scales = fit_linear(torch.zeros_like(z), terms, y, ridge.expand(self.bins), start=common.expand(self.bins))
        return BinnedScales(
            scales=scales.clamp(min=SMALLEST_SCALE).to(out.logits), common=common.to(out.logits), **fitted_on(out, on)
        )


def agreement(out: Outputs) -> Tensor:
    """The share of neighbours with the node's own predicted class; an isolated node agrees with itself."""  # (N,)
    return neighbour_agreement(out.pred, structure(out.graph))


def agreement_bin(share: Tensor, bins: int) -> Tensor:
    """Bin 0..B-1 of a share of neighbours."""  # (N,)
    return (share * bins).long().clamp(max=bins - 1)


class BinnedScales(Calibration):
    """What `RatioBinnedScaling` fits."""

    scales: Tensor  # (B,)
    common: Tensor  # (1,) of a node whose neighbours are not known

    def context(self, out: Outputs) -> Tensor:
        """The share of neighbours that agree."""  # (N, 1)
        return agreement(out)[:, None]

    def from_context(self, logits: Tensor, context: Tensor) -> Tensor:
        share = context[:, 0]
        scale = self.scales[agreement_bin(share.nan_to_num(0.0), len(self.scales))]
        return scaled(logits, torch.where(share.isnan(), self.common, scale))
