"""The same metrics on rows that never meet in memory: a state of fixed size that merges by addition.

    total = Tally.of(batch, y) + Tally.of(next_batch, y)      # on any worker, in any order
    total.ece, total.nll, total.smooth_ece, total.interval()

The state holds sums: the reliability table, C×B cells for the class-wise and top-label errors, 4,096 cells of confidence for
smooth ECE, KDE-ECE, AUROC, AURC and coverage, and the sums of NLL and Brier. ECE and its kin, NLL, Brier and accuracy equal the
one-pass functions up to rounding; AUROC, AURC and coverage count confidences less than 1/4,096 apart as ties; the floor is the
normal one. Equal-mass bins need all confidences at once and are not here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcal.metrics.bins import Reliability, equal_width_edges, tally_rows
from graphcal.metrics.ece_variants import classwise_gaps, mce_of, top_label_gaps
from graphcal.metrics.floor import debiased_of, seeded
from graphcal.metrics.inputs import Array, RowChunk, map_reduce
from graphcal.metrics.intervals import interval_of, normal_noise
from graphcal.metrics.scores import DECIDED_ERROR, ece_of, loss_sums, over_of, under_of
from graphcal.metrics.selective import aurc_of, auroc_of, coverage_of, eaurc_of
from graphcal.metrics.smooth import grids, kde_ece_of, smooth_ece_of

TALLIED = (
    "accuracy", "confidence", "signed_gap", "ece", "ece_debiased", "ece_floor", "ece_excess", "mce", "overconfidence",
    "underconfidence", "ece_classwise", "ece_top_label", "smooth_ece", "kde_ece", "nll", "brier", "auroc", "aurc",
    "eaurc", "coverage_at_5",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over rows; `a + b` is the tally of both."""

    reliability: Reliability
    classwise: Array  # (C, B)  sums of [y = k] - p_k
    top_label: Array  # (C, B)  sums of right - c
    grid: Array  # (3, CELLS)  nodes, right predictions, sums of right - c
    loss: Array  # (2,)  sums of NLL and Brier

    @classmethod
    def of(cls, log_probs: Tensor, y: Tensor, bins: int = 20) -> Tally:
        """The tally of these rows, looked at a chunk at a time."""
        edges = equal_width_edges(bins)
        return map_reduce(log_probs, y, lambda rows: cls._of_rows(rows, edges))

    @classmethod
    def _of_rows(cls, rows: RowChunk, edges: Tensor) -> Tally:
        return cls(
            tally_rows(rows.conf, rows.right, edges),
            classwise_gaps(rows, edges),
            top_label_gaps(rows, edges),
            grids(rows),
            loss_sums(rows),
        )

    def __add__(self, other: Tally) -> Tally:
        if self.classwise.shape != other.classwise.shape:
            raise ValueError(
                "only tallies with the same classes and bins add: got (classes, bins) "
                f"{tuple(self.classwise.shape)} and {tuple(other.classwise.shape)}"
            )
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def nodes(self) -> int:
        return self.reliability.nodes

    @property
    def accuracy(self) -> float:
        return float(self.reliability.right_sum.sum()) / self.nodes

    @property
    def confidence(self) -> float:
        return float(self.reliability.conf_sum.sum()) / self.nodes

    @property
    def signed_gap(self) -> float:
        return self.accuracy - self.confidence

    @property
    def ece(self) -> float:
        return ece_of(self.reliability)

    @property
    def ece_excess(self) -> float:
        return self.ece - self.ece_floor

    @property
    def ece_debiased(self) -> float:
        return debiased_of(self.reliability)

    @property
    def ece_floor(self) -> float:
        """σ √(2/π) in each bin: right beyond a few hundred nodes."""
        return math.sqrt(2 / math.pi) * float(self.reliability.variance.sqrt().sum()) / self.nodes

    @property
    def mce(self) -> float:
        return mce_of(self.reliability)

    @property
    def overconfidence(self) -> float:
        return over_of(self.reliability)

    @property
    def underconfidence(self) -> float:
        return under_of(self.reliability)

    @property
    def ece_classwise(self) -> float:
        return float(np.abs(self.classwise).sum()) / (self.nodes * len(self.classwise))

    @property
    def ece_top_label(self) -> float:
        return float(np.abs(self.top_label).sum()) / self.nodes

    @property
    def smooth_ece(self) -> float:
        return smooth_ece_of(self.grid[2] / self.nodes)

    @property
    def kde_ece(self) -> float:
        return kde_ece_of(self.grid[0], self.grid[1])

    @property
    def nll(self) -> float:
        return float(self.loss[0]) / self.nodes

    @property
    def brier(self) -> float:
        return float(self.loss[1]) / self.nodes

    def _most_confident_first(self) -> tuple[Tensor, Tensor]:
        nodes, right = torch.from_numpy(self.grid[:2, ::-1].copy())
        return nodes, right

    @property
    def auroc(self) -> float:
        return auroc_of(*self._most_confident_first())

    @property
    def aurc(self) -> float:
        return aurc_of(*self._most_confident_first())

    @property
    def eaurc(self) -> float:
        return eaurc_of(*self._most_confident_first())

    @property
    def coverage_at_5(self) -> float:
        return coverage_of(*self._most_confident_first(), DECIDED_ERROR)

    def interval(
        self, level: float = 0.95, draws: int = 1000, generator: torch.Generator | None = None
    ) -> tuple[float, float]:
        """Interval of the calibration error, with normal noise of the resampled nodes' covariance."""
        rel, N = self.reliability, self.nodes
        noise = normal_noise(rel.gap, torch.diag(rel.square / N), N, draws, seeded(generator))
        return interval_of(rel.gap, noise, level)

    def to_dict(self) -> dict[str, Any]:
        """All of the metrics by key."""
        return {"nodes": self.nodes, **{key: getattr(self, key) for key in TALLIED}}
