"""Is the model calibrated enough? A decision with a stated certainty, or the honest answer that nobody can tell yet.

With one-sided bounds of the true binned calibration error θ (see `intervals`),
    pass       upper bound <= limit      with the stated certainty the error is at most the limit
    fail       lower bound >  limit      with the stated certainty it is above
    unknown    else: too few nodes. Bounds shrink as 1/√N, so about N ((bound - θ̂) / (limit - θ̂))² nodes would decide.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from graphcal.metrics.bins import bin_of, confidence, equal_width_edges
from graphcal.metrics.floor import floor_of
from graphcal.metrics.inputs import check
from graphcal.metrics.intervals import error_at, node_noise, seeded, signed_gaps

OUTCOMES = ("pass", "fail", "unknown")


@dataclass(frozen=True)
class Gate:
    """The decision and what it stands on."""

    outcome: str
    limit: float
    certainty: float
    nodes: int
    ece: float
    floor: float
    estimate: float  # median-unbiased estimate of the true error
    low: float
    high: float
    nodes_needed: int | None  # about how many would decide; None when it is decided

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def sentence(self) -> str:
        sure, limit = f"{100 * self.certainty:g} % certainty", f"{100 * self.limit:.1f} points"
        shown = (
            f"ECE {100 * self.ece:.1f} % on {self.nodes:,} nodes; a perfect model would show {100 * self.floor:.1f} %"
        )
        limit = f"the limit is {limit} ({shown})"
        if self.outcome == "pass":
            return f"calibrated enough: with {sure} the true error is at most {100 * self.high:.1f} points, {limit}"
        if self.outcome == "fail":
            return f"not calibrated: with {sure} the true error is at least {100 * self.low:.1f} points, {limit}"
        return (
            f"too few nodes to tell: the true error lies between {100 * self.low:.1f} and {100 * self.high:.1f} points, "
            f"{limit}; about {self.nodes_needed:,} nodes would decide"
        )


def gate(
    log_probs: Tensor,
    y: Tensor,
    limit: float = 0.05,
    certainty: float = 0.95,
    bins: int = 20,
    draws: int = 2000,
    generator: torch.Generator | None = None,
) -> Gate:
    """Decide whether the true calibration error is at most `limit`."""
    check(log_probs, y)
    if not 0 < limit < 1 or not 0.5 <= certainty < 1:
        raise ValueError(f"limit must lie in 0..1 and certainty in 0.5..1, got {limit} and {certainty}")
    conf, pred = confidence(log_probs)
    conf, edges = conf.cpu(), equal_width_edges(bins)
    residual, b = (pred == y).cpu().double() - conf, bin_of(conf, edges)
    d, noise = signed_gaps(residual, b, bins), node_noise(residual, b, bins, draws, seeded(generator))
    low, middle, high = (error_at(d, noise, q) for q in (certainty, 0.5, 1 - certainty))
    outcome = "pass" if high <= limit else "fail" if low > limit else "unknown"
    needed = None
    if outcome == "unknown":
        bound = high if middle <= limit else low
        needed = math.ceil(len(y) * ratio(bound, middle, limit) ** 2)
    return Gate(
        outcome, limit, certainty, len(y), float(d.abs().sum()), floor_of(conf, edges), middle, low, high, needed
    )


def ratio(bound: float, middle: float, limit: float) -> float:
    """By how much the bound must come nearer to the estimate; an estimate at the very limit counts as 0.1 points off."""
    return max(1.0, abs(bound - middle) / max(abs(limit - middle), 1e-3))
