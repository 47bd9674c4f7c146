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

from graphcal.core import Calibration, Needs, Outputs, fitted_on, fitting_nodes
from graphcal.graphs import Columns, GraphSums, MemorySums, structure
from graphcal.methods.card import Card
from graphcal.methods.solvers.linear import fit_linear
from graphcal.methods.solvers.scaling import scaled_columns
from graphcal.methods.temperature import SMALLEST_SCALE, fit_scale
from graphcal.threads import one_thread


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

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> BinnedScales:
        """The scales of least NLL on the nodes ``on`` under the ridge; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        z, y = out.logits[on].double(), out.graph.y[on]
        common = fit_scale(z, y)  # (1,)
        share = agreement(out.logits, MemorySums(structure(out.graph)))[:, 0]  # (N,)
        member = torch.nn.functional.one_hot(agreement_bin(share, self.bins)[on], self.bins).double()  # (n, B)
        terms = z[:, :, None] * member[:, None, :]  # (n, C, B)
        ridge = self.shrink / (len(z) * common**2)
        scales = fit_linear(torch.zeros_like(z), terms, y, ridge.expand(self.bins), start=common.expand(self.bins))
        return BinnedScales(
            scales=scales.clamp(min=SMALLEST_SCALE).to(out.logits), common=common.to(out.logits), **fitted_on(out, on)
        )


def agreement(logits: Columns, graph: GraphSums) -> Columns:
    """Share (N, 1) of neighbours with the node's predicted class; 1 for an isolated node."""
    pred = graph.rows(lambda z: torch.zeros_like(z).scatter(1, z.argmax(-1, keepdim=True), 1.0), logits)  # one-hot
    return graph.rows(_share, pred, graph.neighbour_sum(pred), graph.degree)


def _share(pred: Tensor, around: Tensor, degree: Tensor) -> Tensor:
    count = (pred * around).sum(-1, keepdim=True).double()
    return torch.where(degree > 0, count / degree.clamp(min=1), torch.ones_like(count))


def agreement_bin(share: Tensor, bins: int) -> Tensor:
    """Bin 0..B-1 of a share of neighbours."""  # (N,)
    return (share * bins).long().clamp(max=bins - 1)


class BinnedScales(Calibration):
    """Calibration fitted by `RatioBinnedScaling`."""

    scales: Tensor  # (B,)
    common: Tensor  # (1,) of a node whose neighbours are not known

    needs = Needs(edges=True)

    def context(
        self, logits: Columns, graph: GraphSums, hidden: Columns | None = None, inputs: Columns | None = None
    ) -> Columns:
        """Share of neighbours with the node's predicted class."""  # (N, 1)
        return agreement(logits, graph)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        share = context[0]
        scale = self.scales[agreement_bin(share.nan_to_num(0.0), len(self.scales))]
        return scaled_columns(logits, torch.where(share.isnan(), self.common, scale))
