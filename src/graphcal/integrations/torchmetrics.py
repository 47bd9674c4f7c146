"""The calibration error as a torchmetrics metric, with the floor that sampling puts under it.

    metric = CalibrationErrorWithFloor(num_classes=6)
    metric.update(log_probs, y)
    metric.compute()                    # ECE; metric.floor(), metric.excess() and metric.interval() say what it is worth

The state is a table of sums (`graphcal.metrics.streaming.Tally`): batches and processes add up to what one pass would give.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric

from graphcal.metrics.bins import Reliability, equal_width_edges
from graphcal.metrics.streaming import Tally

SUMS = ("classwise", "top_label", "grid", "loss")
TABLE = ("count", "conf_sum", "right_sum", "variance", "square")


class CalibrationErrorWithFloor(Metric):
    """Top-label ECE of log-probabilities (n, C) and labels (n,)."""

    higher_is_better = False
    is_differentiable = False
    full_state_update = False

    def __init__(self, num_classes: int, bins: int = 20, **options: object) -> None:
        super().__init__(**options)
        self.bins = bins
        log_probs = torch.full((1, num_classes), 1 / num_classes, dtype=torch.double).log()
        empty = Tally.of(log_probs, torch.zeros(1, dtype=torch.long), bins)
        for name, value in self._sums(empty).items():
            self.add_state(name, torch.zeros_like(value), dist_reduce_fx="sum")

    def update(self, log_probs: Tensor, y: Tensor) -> None:
        for name, value in self._sums(Tally.of(log_probs.detach().cpu(), y.cpu(), self.bins)).items():
            setattr(self, name, getattr(self, name) + value.to(getattr(self, name).device))

    def compute(self) -> Tensor:
        return torch.tensor(self.tally().ece)

    def floor(self) -> float:
        """The ECE that a perfectly calibrated model would show on as many nodes."""
        return self.tally().ece_floor

    def excess(self) -> float:
        return self.tally().ece_excess

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Of the calibration error behind its noise."""
        return self.tally().interval(level)

    def tally(self) -> Tally:
        """All sums so far; it has NLL, Brier, smooth ECE, AUROC and more."""
        table = {name: getattr(self, name).cpu() for name in TABLE}
        sums = {name: getattr(self, name).cpu().numpy() for name in SUMS}
        return Tally(Reliability(edges=equal_width_edges(self.bins), **table), **sums)

    @staticmethod
    def _sums(tally: Tally) -> dict[str, Tensor]:
        table = {name: getattr(tally.reliability, name).double() for name in TABLE}
        return {**table, **{name: torch.as_tensor(getattr(tally, name)).double() for name in SUMS}}
