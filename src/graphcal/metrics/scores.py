"""Scores: the cheap numbers of every table, computed together and one by one, as fractions.

ECE       Σ_b n_b/N |acc_b - conf_b|                          Guo et al. 2017, arXiv:1706.04599, Eq. 3
over      Σ_b n_b/N max(conf_b - acc_b, 0), under likewise    ECE = over + under, signed gap = under - over
NLL       -1/N Σ_i log p_i[y_i]
Brier     1/N Σ_i Σ_k (p_ik - [y_i = k])²                     sum over classes: between 0 and 2

AURC, E-AURC, coverage at 5 % error    what the order of the confidences is worth: `selective`
worst slice                           the largest gap of a group of nodes, without its noise, see below

An ECE has one path: `ece_of` a `Reliability`. Its relatives are in `ece_variants`.

*Worst slice*: the gap of the worst group of nodes, corrected for the noise of every group's gap.

A group's gap is accuracy - confidence, g = 1/n Σ (right_i - c_i), with the variance
    v = max(Σ (right_i - c_i)², Σ c_i (1 - c_i)) / n²         (what is observed, or what is claimed where that is more).
The largest |g| of twenty groups is mostly noise: a calibrated model on 1,000 nodes shows ten points. So each group's distance
from the gap of all nodes, d = g - g_all, is replaced by the one of which it is the median, were all other groups like all nodes
and were this one picked for standing out the most:
    P(|ε + θ/σ| <= z) · P(|ε| <= z)^(S-1) = 1/2,        z = |d|/σ, σ = √v, ε ~ Normal(0, 1), S groups,
and by 0 where even that is too much: a distance of four σ stays as it is, one of two and a half loses a seventh, of two
nothing is left. The corrected gap is g_all + θ, and `worst_gap` the largest over all groups of all cuts.
Groups of fewer than `SMALL` nodes do not count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcal.metrics.bins import BINS, Reliability, outcomes, reliability
from graphcal.metrics.floor import debiased_of, floor_of
from graphcal.metrics.inputs import Array, RowChunk, map_reduce
from graphcal.metrics.selective import aurc_of, auroc_of, best_aurc_of, coverage_of, grouped

DECIDED_ERROR = 0.05  # the error of `coverage_at_5`


def ece_of(rel: Reliability) -> float:
    """Expected calibration error of a reliability table."""
    return float(rel.gap.abs().sum())


def over_of(rel: Reliability) -> float:
    """The part of ECE from bins that claim more than they keep."""
    return float((-rel.gap).clamp(min=0).sum())


def under_of(rel: Reliability) -> float:
    """The part of ECE from bins that keep more than they claim."""
    return float(rel.gap.clamp(min=0).sum())


def ece(log_probs: Tensor, y: Tensor, bins: int = BINS, scheme: str = "equal-width") -> float:
    """Expected calibration error of the predicted class."""
    return ece_of(reliability(log_probs, y, bins, scheme))


def overconfidence(log_probs: Tensor, y: Tensor, bins: int = BINS) -> float:
    """Part of the ECE from bins with too much confidence."""
    return over_of(reliability(log_probs, y, bins))


def underconfidence(log_probs: Tensor, y: Tensor, bins: int = BINS) -> float:
    """Part of the ECE from bins with too little confidence."""
    return under_of(reliability(log_probs, y, bins))


def signed_gap(log_probs: Tensor, y: Tensor) -> float:
    """Accuracy minus mean confidence: positive is under-confident."""
    return float(reliability(log_probs, y, bins=1).gap.sum())


def accuracy(log_probs: Tensor, y: Tensor) -> float:
    """Share of nodes whose most probable class is the label; the first class wins a tie."""
    return float(outcomes(log_probs, y)[1].mean())


def nll_terms(log_probs: Tensor, y: Tensor) -> Tensor:
    """(N,) negative log-probability of each label; infinite where it was given probability 0."""
    return -log_probs.gather(1, y[:, None].long())[:, 0].double()


def brier_terms(log_probs: Tensor, y: Tensor) -> Tensor:
    """(N,) squared distance between probabilities and the one-hot label."""
    probs = log_probs.double().exp()  # (N, C)
    of_label = probs.gather(1, y[:, None].long())[:, 0]
    return (probs**2).sum(dim=1) - 2 * of_label + 1


def loss_sums(rows: RowChunk) -> Array:
    """(2,) sums of NLL and Brier over some rows: the additive state of both."""
    of_label, square = rows.of_label, 0.0
    for one in rows.by_class:
        p = np.exp(one.astype(np.float64))
        square += float(p @ p)
    return np.array([-of_label.sum(), square - 2 * np.exp(of_label).sum() + len(of_label)])


def losses(log_probs: Tensor, y: Tensor) -> tuple[float, float]:
    """NLL and Brier."""
    a, b = (map_reduce(log_probs, y, loss_sums) / len(y)).tolist()
    return a, b


def nll(log_probs: Tensor, y: Tensor) -> float:
    """Mean negative log-probability of the label."""
    return losses(log_probs, y)[0]


def brier(log_probs: Tensor, y: Tensor) -> float:
    """Mean squared distance between the probabilities and the one-hot label, summed over classes."""
    return losses(log_probs, y)[1]


@dataclass(frozen=True)
class Scores:
    """The cheap numbers about one set of predictions, as fractions; NaN where there is nothing to average."""

    nodes: int
    accuracy: float
    confidence: float
    ece: float
    ece_floor: float  # a perfectly calibrated model's expected ECE on these nodes
    ece_debiased: float
    overconfidence: float
    underconfidence: float
    confidence_right: float
    confidence_wrong: float
    nll: float
    brier: float
    auroc: float
    aurc: float
    eaurc: float  # AURC above that of the best order of the same predictions
    coverage_at_5: float  # oracle: largest share, most confident first, of which at most 5 % are wrong
    worst_slice: float  # largest gap of a group of nodes, without its noise

    @property
    def signed_gap(self) -> float:
        """Accuracy minus confidence: positive is under-confident."""
        return self.accuracy - self.confidence

    @property
    def ece_excess(self) -> float:
        """ECE above its floor: less than the true error, because noise and error do not simply add."""
        return self.ece - self.ece_floor

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers by key; null where a number does not exist."""
        values = {key: getattr(self, key) for key in SCORES}
        return {"nodes": self.nodes, **{k: None if math.isnan(v) else v for k, v in values.items()}}


OF_SCORES = tuple(f.name for f in fields(Scores) if f.name != "nodes")  # what a constructor takes
SCORES = (*OF_SCORES, "signed_gap", "ece_excess")  # keys of every set of metrics


def score(log_probs: Tensor, y: Tensor, bins: int = BINS, cuts: Sequence[Tensor] = ()) -> Scores:
    """All scores of these rows. The worst slice is looked for among predicted classes and the ``cuts`` (N,) of the rows."""
    rel = reliability(log_probs, y, bins)
    conf, right = outcomes(log_probs, y)
    order, (mean_nll, mean_brier) = grouped(conf, right), losses(log_probs, y)
    N, area = len(y), aurc_of(*order)
    return Scores(
        nodes=N,
        accuracy=float(rel.right_sum.sum()) / N,
        confidence=float(rel.conf_sum.sum()) / N,
        ece=ece_of(rel),
        ece_floor=floor_of(conf, rel.edges),
        ece_debiased=debiased_of(rel),
        overconfidence=over_of(rel),
        underconfidence=under_of(rel),
        confidence_right=float(conf[right == 1].mean()),
        confidence_wrong=float(conf[right == 0].mean()),
        nll=mean_nll,
        brier=mean_brier,
        auroc=auroc_of(*order),
        aurc=area,
        eaurc=area - best_aurc_of(*order),
        coverage_at_5=coverage_of(*order, DECIDED_ERROR),
        worst_slice=worst_gap(conf, right, [log_probs.argmax(dim=1).cpu(), *cuts]),
    )


def mean_scores(several: Sequence[Scores]) -> Scores:
    """The mean over seeds that were measured on the same nodes."""
    return Scores(several[0].nodes, **{key: fmean(getattr(s, key) for s in several) for key in OF_SCORES})


SMALL = 30  # nodes; smaller groups do not count


def gaps_of(conf: Tensor, right: Tensor, group: Tensor, groups: int, seeds: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes (G,) of each group, their gap and its variance; with several seeds pooled, a node counts once."""

    def total(values: Tensor) -> Tensor:
        return torch.bincount(group, values, minlength=groups)

    rows = torch.bincount(group, minlength=groups).double()
    some, residual = rows.clamp(min=1), right - conf
    square = torch.maximum(total(residual**2), total(conf * (1 - conf)))
    return rows / seeds, total(residual) / some, square / some * seeds / some


def whole(nodes: int) -> Tensor:
    """The cut that has all nodes in one group."""
    return torch.zeros(nodes, dtype=torch.long)


def without_noise(gap: Tensor, variance: Tensor, groups: int) -> Tensor:
    """θ with the sign of each gap: what is left of it once noise, and being one of so many `groups`, is taken off."""
    sd = variance.clamp(min=1e-300).sqrt()
    z, normal = gap.abs() / sd, torch.special.ndtr
    others = (2 * normal(z) - 1) ** (groups - 1)
    low, high = torch.zeros_like(z), z.clone()  # at θ/σ = z the left side is below 1/2
    for _ in range(50):
        middle = (low + high) / 2
        more = (normal(z - middle) - normal(-z - middle)) * others > 0.5
        low, high = torch.where(more, middle, low), torch.where(more, high, middle)
    return torch.sign(gap) * low * sd


def corrected_gaps(gap: Tensor, variance: Tensor, groups: int) -> Tensor:
    """(G,) gaps without their noise. The first is that of all nodes; so many `groups` are looked at."""
    level = without_noise(gap[:1], variance[:1], 1)
    return level + without_noise(gap - level, variance, groups)


def worst_gap(conf: Tensor, right: Tensor, cuts: Sequence[Tensor]) -> float:
    """Largest corrected |gap| of a group, over several cuts of the nodes; a cut (N,) numbers each node's group."""
    cuts = [whole(len(conf)), *cuts]
    nodes, gap, variance = (
        torch.cat(parts) for parts in zip(*(gaps_of(conf, right, cut, int(cut.max()) + 1) for cut in cuts))
    )
    kept = nodes >= SMALL
    kept[0] = True
    left = corrected_gaps(gap[kept], variance[kept], max(1, int(kept.sum()) - 1))
    return float(left.abs().max())
