"""Judge whether a model is calibrated enough, with a stated certainty, or say that there are too few nodes to tell.

What is judged is the binned calibration error θ
    of three and more classes: of the confidence, the probability of the predicted class, in equal-width bins;
    of two classes: of the probability of class 1, the positive one, in equal-mass bins of at least 50 nodes. Confidence would not
    do: where 2 % are positive, it is right to be 98 % sure of class 0, whatever the probabilities of class 1 are.
With one-sided bounds of θ (see `intervals`),
    pass       upper bound <= limit      with the stated certainty the error is at most the limit
    fail       lower bound >  limit      with the stated certainty it is above
    unknown    else: too few nodes. Bounds shrink as 1/√N, so about N ((bound - θ̂) / (limit - θ̂))² nodes would decide.

Two classes also fail when the mean probability of class 1, p̄, is not the share of class 1. A rare class is never wrong by many
points, so the share may be off by the limit, but not by more than half of p̄ (or of 1 - p̄). The number of positives is tested
against the binomial law at either end of that range (two-sided, at the stated certainty).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from scipy.special import bdtr, bdtrc
from torch import Tensor

from graphcal.metrics.bins import BINS, bin_of, equal_mass_edges, equal_width_edges, outcomes
from graphcal.metrics.floor import floor_of, seeded
from graphcal.metrics.inputs import check
from graphcal.metrics.intervals import error_at, noise_of, signed_gaps

FEWEST_IN_BIN = 50  # of equal mass: fewer nodes resampled show too little noise
CONFIDENCE, POSITIVE = "confidence of the predicted class", "probability of class 1"


@dataclass(frozen=True)
class Judgement:
    """Outcome of the gate, and the figures behind it."""

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
    quantity: str = CONFIDENCE  # which probability was judged
    binning: str = ""
    # Two classes only
    mean_probability: float | None = None  # of class 1
    share: float | None = None  # of class 1 among the labels
    mean_p: float | None = None  # p-value: the share is as far from the mean probability as the limit allows

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def mean_is_off(self) -> bool:
        """Return whether the mean probability of class 1 contradicts the share of class 1."""
        return self.mean_p is not None and self.mean_p <= 1 - self.certainty

    def sentence(self) -> str:
        sure, limit = f"{100 * self.certainty:g} % certainty", f"{100 * self.limit:.1f} points"
        name = "ECE" if self.mean_probability is None else f"ECE of the {POSITIVE}"
        shown = f"{name} {100 * self.ece:.1f} % on {self.nodes:,} nodes; a perfect model would show {100 * self.ece_floor:.1f} %"
        limit = f"the limit is {limit} ({shown})"
        if self.outcome == "pass":
            return f"calibrated enough: with {sure} the true error is at most {100 * self.high:.1f} points, {limit}"
        if self.mean_is_off and self.mean_probability is not None and self.share is not None:
            return (
                f"not calibrated: the mean {POSITIVE} is {100 * self.mean_probability:.3g} %, but {100 * self.share:.3g} % of "
                f"the {self.nodes:,} nodes are of class 1 (p = {self.mean_p:.2g})"
            )
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
    bins: int = BINS,
    draws: int = 2000,
    generator: torch.Generator | None = None,
) -> Judgement:
    """Judge whether the true calibration error is at most `limit`; of two classes, that of the probability of class 1.

    >>> log_probs = torch.tensor([[0.999, 0.001]]).log().repeat(1000, 1)
    >>> judge(log_probs, (torch.arange(1000) < 23).long()).sentence()
    'not calibrated: the mean probability of class 1 is 0.1 %, but 2.3 % of the 1,000 nodes are of class 1 (p = 1.7e-19)'
    """
    if not 0 < limit < 1 or not 0.5 <= certainty < 1:
        raise ValueError(f"limit must lie in 0..1 and certainty in 0.5..1, got {limit} and {certainty}")
    two_classes = log_probs.shape[-1] == 2
    if two_classes:
        check(log_probs, y)
        probability, event = log_probs[:, 1].detach().cpu().double().exp().clamp(max=1.0), (y == 1).cpu().double()
        bins = max(1, min(bins, len(y) // FEWEST_IN_BIN))
        edges = equal_mass_edges(probability, bins)
    else:
        (probability, event), edges = outcomes(log_probs, y), equal_width_edges(bins)
    residual, cell = (event - probability)[:, None], bin_of(probability, edges)[:, None]
    d, (_, noise) = signed_gaps(residual, cell, bins), noise_of(residual, cell, bins, draws, seeded(generator))
    low, middle, high = (error_at(d, noise, q) for q in (certainty, 0.5, 1 - certainty))
    facts = (limit, certainty, len(y), float(d.abs().sum()), floor_of(probability, edges), middle, low, high)
    more: dict[str, Any] = {"quantity": CONFIDENCE, "binning": f"{bins} equal-width"}
    if two_classes:
        mean, positives = float(probability.mean()), int(event.sum())
        p = p_of_the_mean(mean, positives, len(y), min(limit, mean / 2, (1 - mean) / 2))
        more = {"quantity": POSITIVE, "binning": f"{bins} equal-mass", "mean_probability": mean}
        more |= {"share": positives / len(y), "mean_p": p}
        if p <= 1 - certainty:
            return Judgement("fail", *facts, nodes_needed=None, **more)
    if high <= limit:
        return Judgement("pass", *facts, nodes_needed=None, **more)
    if low > limit:
        return Judgement("fail", *facts, nodes_needed=None, **more)
    bound = high if middle <= limit else low
    needed = math.ceil(len(y) * shrinkage(bound, middle, limit) ** 2)
    return Judgement("unknown", *facts, nodes_needed=needed, **more)


def p_of_the_mean(mean: float, positives: int, nodes: int, margin: float) -> float:
    """Two-sided p-value of so many positives where their expected share is within `margin` of the mean probability.

    The binomial law has at least the variance of the sum of Bernoulli variables with unequal probabilities of the same mean.
    """
    few = float(bdtr(positives, nodes, max(mean - margin, 0.0)))
    many = float(bdtrc(positives - 1, nodes, min(mean + margin, 1.0)))
    return min(1.0, 2 * min(few, many))


def shrinkage(bound: float, middle: float, limit: float) -> float:
    """Factor by which the bound must come nearer to the estimate; an estimate at the limit counts as 0.1 points off."""
    return max(1.0, abs(bound - middle) / max(abs(limit - middle), 1e-3))
