"""Number of test nodes to detect a difference, and of validation labels to fit a calibrator.

Test nodes.  The sampling error of a comparison shrinks as 1/√N. A difference Δ is seen (two-sided level 1 - α) with
probability `power` when the standard deviation is Δ / (z_{1-α/2} + z_power), hence
    N' = N ((z_{1-α/2} + z_power) sd / Δ)².

The label limit.  A calibrator is fitted on n validation labels, and these leave the level of confidence undetermined by
    sd = √(mean c(1-c) / n)            (500 labels at 80 % accuracy: 1.8 points).
A calibrator of the right form with one free parameter, the overall level, therefore has a true error of about
E|Normal(0, sd²)| = sd √(2/π), and on N test nodes, with share w_b and variance v_b = Σ_{i in b} c_i (1-c_i) / N² of the bins, it
measures
    Σ_b √(2/π) √(v_b + w_b² sd²).
This is the limit of an unpenalised one-parameter fit only. More free parameters are expected to show more. A model that needs
no fit shows the floor, and a fit that is shrunk towards the right level shows less than the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scipy.special import ndtri
from torch import Tensor

from graphcal.metrics.bins import BINS, checked_confidence, equal_width_edges, tally
from graphcal.metrics.floor import floor_of


def nodes_needed(difference: float, sd: float, nodes: int, level: float = 0.95, power: float = 0.9) -> int:
    """Test nodes to see a `difference` when `nodes` nodes give it the standard deviation `sd`."""
    if difference == 0:
        raise ValueError("difference must not be 0: no number of nodes shows a difference that is not there")
    if sd < 0 or nodes < 1:
        raise ValueError(f"sd must be at least 0 and nodes at least 1, got {sd} and {nodes}")
    z = float(ndtri((1 + level) / 2) + ndtri(power))
    return max(1, math.ceil(nodes * (z * sd / abs(difference)) ** 2))


@dataclass(frozen=True)
class LabelLimit:
    """Smallest errors that n validation labels and N test nodes allow, as fractions."""

    labels: int
    nodes: int
    undetermined: float  # standard deviation of the level of confidence after fitting on the labels
    true_error: float  # expected true calibration error of the right calibrator
    measured: float  # the ECE it is expected to show on the test nodes
    ece_floor: float  # the ECE a perfect model is expected to show on the test nodes

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def labels_for(self, true_error: float) -> int:
        """Validation labels after which the right calibrator's true error is expected to be this small."""
        return math.ceil(self.labels * (self.true_error / true_error) ** 2)

    def nodes_for(self, floor: float) -> int:
        """Test nodes at which a perfect model is expected to show this ECE."""
        return math.ceil(self.nodes * (self.ece_floor / floor) ** 2)


def label_limit(log_probs: Tensor, labels: int, bins: int = BINS) -> LabelLimit:
    """Expected error of a one-parameter fit of the right form on `labels` validation labels, seen on the nodes of `log_probs`."""
    if labels < 1:
        raise ValueError(f"labels must be at least 1, got {labels}")
    conf, edges = checked_confidence(log_probs), equal_width_edges(bins)
    rel, N = tally(conf, conf, edges), len(conf)
    sd = math.sqrt(float(rel.variance.sum()) / N / labels)
    measured = _measured(rel.count.tolist(), rel.variance.tolist(), sd)
    floor = floor_of(conf, edges)
    return LabelLimit(labels, N, sd, sd * math.sqrt(2 / math.pi), max(measured, floor), floor)


def limit_in_bins(count: Sequence[int], confidence: Sequence[float | None], labels: int) -> float:
    """`LabelLimit.measured` from a reliability diagram alone: every node of a bin is taken to have its mean confidence."""
    variance = [n * c * (1 - c) if c is not None else 0.0 for n, c in zip(count, confidence)]
    return _measured(count, variance, math.sqrt(sum(variance) / sum(count) / labels))


def _measured(count: Sequence[float], variance: Sequence[float], sd: float) -> float:
    """sum_b sqrt(2/pi) sqrt(v_b + w_b^2 sd^2)."""
    N = sum(count)
    return math.sqrt(2 / math.pi) * sum(math.hypot(math.sqrt(v) / N, n / N * sd) for n, v in zip(count, variance))
