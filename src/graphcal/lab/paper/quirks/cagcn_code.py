"""CaGCN as two pieces of code have it, for reproduction only: its own, and the copy inside GATS's.

    cagcn-code   the official loop switches the whole wrapper to training mode: the *base model's* dropout is on, and the scale is
                 learnt on logits that are drawn anew in every epoch
    cagcn-gats   s = softplus(t), and no margin in the loss

Everything else is `graphcal.lab.baselines.cagcn`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from graphcal.core import Outputs, fitted_on
from graphcal.lab.baselines.cagcn import NodeScaleGCN, NodeScaleSettings, fit_node_scale, scale_of_every_node
from graphcal.methods.card import Card


@dataclass(frozen=True)
class CaGCNofItsCode(NodeScaleSettings):
    """CaGCN, its scale learnt on logits that the base model's dropout makes noisy."""

    card: ClassVar[Card] = Card(
        title="CaGCN, its code",
        formula="z' = log(exp(t) + 1.1) z, t = GCN(z); loss CE + 0.5 margin",
        paper="the code of Wang et al., NeurIPS 2021, arXiv:2109.14285",
        parameters="GCN C -> 16 -> 1: 16 C + 33",
        cost="fit: up to 2,000 passes through the model and Adam steps; apply: two sparse products",
        keeps_predictions=True,
        graph=True,
        model=True,
        departures="none from the code",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> NodeScaleGCN:
        """The GCN of least CE, on clean logits of ``stop`` (or ``on``), along Adam's way down the loss of noisy ones."""

        def redraw(generator: torch.Generator) -> Tensor:
            return out.rerun("cagcn-code", dropout=generator)

        weights = fit_node_scale(self, out, out.logits, on, stop, redraw=redraw)
        return NodeScaleGCN(**weights, **fitted_on(out, on))


@dataclass(frozen=True)
class CaGCNofGATS(NodeScaleSettings):
    """CaGCN with a softplus and without its margin term."""

    margin: float = 0.0

    card: ClassVar[Card] = Card(
        title="CaGCN, the copy in GATS's code",
        formula="z' = softplus(t) z, t = GCN(z); loss CE",
        paper="the code of Hsu et al., NeurIPS 2022, arXiv:2210.06391",
        parameters="GCN C -> 16 -> 1: 16 C + 33",
        cost="fit: up to 2,000 full-batch Adam steps on the neighbourhood of the fitted nodes; apply: two sparse products",
        keeps_predictions=True,
        graph=True,
        departures="the base model's dropout is off while fitting",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> SoftplusScaleGCN:
        """The GCN of least CE on the nodes ``stop`` (or ``on``) along Adam's way down that of the nodes ``on``."""
        weights = fit_node_scale(self, out, out.logits, on, stop, link=softplus)
        return SoftplusScaleGCN(**weights, **fitted_on(out, on))


class SoftplusScaleGCN(NodeScaleGCN):
    """Calibration fitted by `CaGCNofGATS`."""

    def scale(self, out: Outputs) -> Tensor:
        return scale_of_every_node(self, out, out.logits, softplus)
