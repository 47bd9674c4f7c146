"""Histogram binning (Zadrozny & Elkan 2001), one class against the rest, then renormalised.

p'_c ~ (labels of class c among the fitted nodes of p_c's bin) / (nodes in that bin)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphcal.core import Calibration, Outputs, fitted_on, fitting_nodes
from graphcal.methods.card import Card
from graphcal.threads import one_thread

BINNINGS = ("equal-mass", "equal-width")


@dataclass(frozen=True)
class HistogramBinning:
    """Replace each class probability by the frequency observed in its bin.

    Assumes nothing about the shape of the error and needs many validation nodes for it; it may change predictions.
    """

    bins: int = 15
    binning: str = "equal-mass"

    card: ClassVar[Card] = Card(
        title="Histogram binning",
        formula="p'_c ~ frequency of class c among fitted nodes whose p_c falls in the same bin",
        paper="Zadrozny & Elkan, Obtaining calibrated probability estimates, ICML 2001",
        parameters="bins x C frequencies",
        cost="fit: sorting n C numbers; apply: O(N C log bins)",
        keeps_predictions=False,
        departures="each bin counts one extra node at its mean predicted probability: a bin without a label of the class does "
        "not say zero, and an empty one says what the model says",
    )

    def __post_init__(self) -> None:
        if self.binning not in BINNINGS:
            raise ValueError(f"binning must be one of {', '.join(BINNINGS)}; got {self.binning!r}")
        if self.bins < 1:
            raise ValueError(f"bins must be at least 1; got {self.bins}")

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> BinFrequencies:
        """The frequency of each class in each of its bins, on the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        probs = out.logits[on].double().softmax(-1)  # (n, C)
        truth = one_hot(out.graph.y[on], out.num_classes).double()
        inner = torch.linspace(0, 1, self.bins + 1, dtype=torch.double, device=probs.device)[1:-1]
        equal_mass = self.binning == "equal-mass"
        # (C, B - 1)
        edges = probs.quantile(inner, dim=0).T.contiguous() if equal_mass else inner.repeat(out.num_classes, 1)
        which = torch.searchsorted(edges, probs.T.contiguous())  # (C, n) bin of every node
        zero = torch.zeros(out.num_classes, self.bins, dtype=torch.double, device=probs.device)
        count = zero.scatter_add(1, which, torch.ones_like(probs.T))
        hits = zero.scatter_add(1, which, truth.T)
        mass = zero.scatter_add(1, which, probs.T)
        bounds = torch.cat([zero[:, :1], edges, torch.ones_like(zero[:, :1])], 1)
        expected = torch.where(count > 0, mass / count.clamp(min=1), (bounds[:, 1:] + bounds[:, :-1]) / 2)
        frequency = (hits + expected) / (count + 1)
        edges = (edges * (1 + 1e-6)).to(out.logits)  # a fitted node whose probability is the edge itself stays below it
        return BinFrequencies(edges=edges, frequency=frequency.to(out.logits), **fitted_on(out, on))


class BinFrequencies(Calibration):
    """Calibration fitted by `HistogramBinning`."""

    edges: Tensor  # (C, B - 1) inner bin edges
    frequency: Tensor  # (C, B)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        probs = logits.softmax(0)
        which = torch.searchsorted(self.edges.to(probs).contiguous(), probs.contiguous())  # (C, n)
        frequency = self.frequency.to(probs).gather(1, which)
        return frequency.clamp(min=torch.finfo(probs.dtype).tiny).log().log_softmax(0)
