"""Gap of the worst group of nodes, corrected for the noise of every group's gap.

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

from collections.abc import Sequence

import torch
from torch import Tensor

SMALL = 30  # nodes; fewer are not believed


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
