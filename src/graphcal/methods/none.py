"""No calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from graphcal.core import Calibration, Outputs, fitted_on, fitting_nodes
from graphcal.methods.card import Card


@dataclass(frozen=True)
class Uncalibrated:
    """Leave the model alone: the row every other method is compared with."""

    card: ClassVar[Card] = Card(
        title="Uncalibrated",
        formula="p = softmax(z)",
        paper="-",
        parameters="none",
        cost="fit: nothing; apply: O(N C)",
        keeps_predictions=True,
        minimises_nll=True,
        labels="none",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> Identity:
        """Nothing is fitted; the nodes ``on`` are checked all the same."""
        fitting_nodes(out, on)
        return Identity(**fitted_on(out, on))


class Identity(Calibration):
    """Calibration returned by `Uncalibrated`."""

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        return logits.log_softmax(0)
