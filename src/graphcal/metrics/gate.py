"""A gate for pipelines: is the model calibrated enough? A judgement with a stated certainty, or "nobody can tell yet".

With one-sided bounds of the true binned calibration error θ (see `intervals`),
    pass       upper bound <= limit      with the stated certainty the error is at most the limit
    fail       lower bound >  limit      with the stated certainty it is above
    unknown    else: too few nodes. Bounds shrink as 1/√N, so about N ((bound - θ̂) / (limit - θ̂))² nodes would decide.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from graphcal.metrics.floor import ece_floor, seeded
from graphcal.metrics.intervals import error_at, gap_noise
from graphcal.metrics.scores import ece


@dataclass(frozen=True)
class Judgement:
    """The answer and what it stands on."""

    outcome: Literal["pass", "fail", "unknown"]
    limit: float
    certainty: float
    nodes: int
    ece: float
    ece_floor: float
    estimate: float  # median-unbiased estimate of the true error
    low: float
    high: float
    nodes_needed: int | None  # about how many would decide; None when it is decided

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def sentence(self) -> str:
        sure, limit = f"{100 * self.certainty:g} % certainty", f"{100 * self.limit:.1f} points"
        shown = f"ECE {100 * self.ece:.1f} % on {self.nodes:,} nodes; a perfect model would show {100 * self.ece_floor:.1f} %"
        limit = f"the limit is {limit} ({shown})"
        if self.outcome == "pass":
            return f"calibrated enough: with {sure} the true error is at most {100 * self.high:.1f} points, {limit}"
        if self.outcome == "fail":
            return f"not calibrated: with {sure} the true error is at least {100 * self.low:.1f} points, {limit}"
        return (
            f"too few nodes to tell: the true error lies between {100 * self.low:.1f} and {100 * self.high:.1f} points, "
            f"{limit}; about {self.nodes_needed:,} nodes would decide"
        )


def judge(
    log_probs: Tensor,
    y: Tensor,
    limit: float = 0.05,
    certainty: float = 0.95,
    bins: int = 20,
    draws: int = 2000,
    generator: torch.Generator | None = None,
) -> Judgement:
    """Is the true calibration error at most `limit`, with this certainty?"""
    if not 0 < limit < 1 or not 0.5 <= certainty < 1:
        raise ValueError(f"limit must lie in 0..1 and certainty in 0.5..1, got {limit} and {certainty}")
    observed = ece(log_probs, y, bins)
    d, noise = gap_noise([log_probs], y, bins, draws, seeded(generator))
    low, middle, high = (error_at(d, noise, q) for q in (certainty, 0.5, 1 - certainty))
    facts = (limit, certainty, len(y), observed, ece_floor(log_probs, bins), middle, low, high)
    if high <= limit:
        return Judgement("pass", *facts, nodes_needed=None)
    if low > limit:
        return Judgement("fail", *facts, nodes_needed=None)
    bound = high if middle <= limit else low
    return Judgement("unknown", *facts, nodes_needed=math.ceil(len(y) * shrinkage(bound, middle, limit) ** 2))


def shrinkage(bound: float, middle: float, limit: float) -> float:
    """By how much the bound must come nearer to the estimate; an estimate at the very limit counts as 0.1 points off."""
    return max(1.0, abs(bound - middle) / max(abs(limit - middle), 1e-3))
