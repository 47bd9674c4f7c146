"""An interval for the calibration error, by bootstrap over nodes or over blocks of neighbours.

The quantity is the population's binned calibration error, θ = Σ_b |E[(right - c) 1_b]|: what ECE tends to with
these bins and ever more nodes. The plain percentile bootstrap is no interval for it: resampling adds noise to noise,
so on a calibrated model it never contains 0. Here the bootstrap only supplies the noise ε of the signed gaps,

    d_b = 1/N Σ_{i in b} (right_i - c_i),      ε*_b = d*_b - d_b   (d* from resampled nodes),

and the interval collects the θ that the observed ECE, T = Σ|d_b|, does not contradict (a test, inverted):

    θ is in the interval when  q_{α/2}(θ) <= T <= q_{1-α/2}(θ),   q of Σ_b |θ u_b + ε*_b|,   Σ|u_b| = 1.

At θ = 0 this is a test of calibration. The shape u of the true gaps is unknown. With ρ = 1 - Σ var(ε_b) / Σ d_b², the
share of the observed gaps that noise does not explain, u is ρ² of the observed shape d/T and 1 - ρ² of the noise's
own shape, sd(ε_b). (ρ² and not ρ: it covers best in simulation; 92-98 % in all cases tried, see the tests.)

Neighbours are not independent: a node and its neighbours are right or wrong together. For the block bootstrap every
node draws a random number and joins the neighbour (or itself) with the smallest one; who follow the same leader are a
block, and blocks are drawn with replacement. A new partition is made for every 50 draws.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphcal.metrics.bins import bin_of, confidence, equal_width_edges
from graphcal.metrics.inputs import check

RESAMPLE_UP_TO = 20_000  # nodes; beyond, the resampled gaps are normal with the bootstrap's own covariance
DRAWS_PER_PARTITION = 50


def seeded(generator: torch.Generator | None) -> torch.Generator:
    """The generator given, or one that starts at 0, so that a figure is the same each time it is computed."""
    return torch.Generator().manual_seed(0) if generator is None else generator


def signed_gaps(residual: Tensor, b: Tensor, bins: int) -> Tensor:
    """d_b = 1/N Σ_{i in b} (right_i - c_i)."""
    return torch.bincount(b, weights=residual, minlength=bins) / len(residual)


def normal_noise(gap: Tensor, square: Tensor, nodes: float, draws: int, generator: torch.Generator) -> Tensor:
    """ε*: (draws, B) normal with the covariance of resampled nodes; `square` = 1/N Σ_{i in b} (right_i - c_i)²."""
    covariance = (torch.diag(square + 1e-18) - torch.outer(gap, gap)) / nodes
    root = torch.linalg.cholesky_ex(covariance).L
    return torch.randn(draws, len(gap), generator=generator, dtype=torch.float64) @ root.T


def node_noise(residual: Tensor, b: Tensor, bins: int, draws: int, generator: torch.Generator) -> Tensor:
    """ε*: (draws, B) changes of the signed gaps when the nodes are drawn again with replacement."""
    N, d = len(residual), signed_gaps(residual, b, bins)
    if N > RESAMPLE_UP_TO:
        return normal_noise(d, signed_gaps(residual**2, b, bins), N, draws, generator)
    parts = []
    for rows in torch.arange(draws).split(max(1, 4_000_000 // N)):
        again = torch.randint(N, (len(rows), N), generator=generator)
        cell = b[again] + bins * torch.arange(len(rows))[:, None]  # (rows, N)
        sums = torch.bincount(cell.flatten(), weights=residual[again].flatten(), minlength=bins * len(rows))
        parts.append(sums.view(len(rows), bins) / N - d)
    return torch.cat(parts)


def random_blocks(edge_index: Tensor, num_nodes: int, generator: torch.Generator) -> Tensor:
    """(N,) leader of each node: the node with the smallest random number among itself and its neighbours."""
    rank = torch.randperm(num_nodes, generator=generator)
    lowest = rank.scatter_reduce(0, edge_index[0].cpu(), rank[edge_index[1].cpu()], reduce="amin")
    return rank.argsort()[lowest]


def block_noise(
    residual: Tensor, b: Tensor, bins: int, edge_index: Tensor, nodes: Tensor, draws: int, generator: torch.Generator
) -> Tensor:
    """ε*: (draws, B) changes of the signed gaps when blocks of neighbours are drawn again with replacement.

    `nodes` (N,) are the measured nodes' numbers in the graph of `edge_index`; blocks also form through other nodes.
    """
    d, size, noise = signed_gaps(residual, b, bins), 1 + int(max(edge_index.max(), nodes.max())), []
    for rows in torch.arange(draws).split(DRAWS_PER_PARTITION):
        _, block = random_blocks(edge_index, size, generator)[nodes.cpu()].unique(return_inverse=True)
        K = int(block.max()) + 1
        sums = torch.zeros(K, bins + 1, dtype=torch.float64)  # (K, B + 1)  residuals by bin, and nodes
        sums.index_put_((block, b), residual, accumulate=True)
        sums[:, bins] = torch.bincount(block, minlength=K)
        for _ in rows:
            again = torch.bincount(torch.randint(K, (K,), generator=generator), minlength=K).double() @ sums
            noise.append(again[:bins] / again[bins] - d)
    return torch.stack(noise)


def gap_shape(d: Tensor, noise: Tensor) -> Tensor:
    """u: how a calibration error of size 1 is shared among the bins, with signs; Σ|u_b| = 1."""
    sd, tiny = noise.std(dim=0), 1e-300
    real = (1 - (sd**2).sum() / (d**2).sum().clamp(min=tiny)).clamp(min=0) ** 2
    sign = torch.where(d < 0, -1.0, 1.0).double()
    u = real * d / d.abs().sum().clamp(min=tiny) + (1 - real) * sign * sd / sd.sum().clamp(min=tiny)
    return u / u.abs().sum().clamp(min=tiny)


def smallest(enough: Callable[[float], bool], high: float = 1.0) -> float:
    """The smallest θ in [0, high] that is enough, for a condition that once true stays true."""
    low = 0.0
    if enough(low):
        return low
    for _ in range(17):  # to 1e-5
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return (low + high) / 2


def error_at(d: Tensor, noise: Tensor, quantile: float) -> float:
    """The θ for which the observed ECE is this quantile of what θ gives: 0.5 is the median-unbiased estimate."""
    observed, u = float(d.abs().sum()), gap_shape(d, noise)
    return smallest(lambda theta: float((theta * u + noise).abs().sum(dim=1).quantile(quantile)) >= observed)


def interval_of(d: Tensor, noise: Tensor, level: float) -> tuple[float, float]:
    """Calibration errors that signed gaps `d` do not contradict, given their noise."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    return error_at(d, noise, (1 + level) / 2), error_at(d, noise, (1 - level) / 2)


def ece_interval(
    log_probs: Tensor,
    y: Tensor,
    bins: int = 20,
    level: float = 0.95,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> tuple[float, float]:
    """Interval that contains the binned calibration error with probability `level`; nodes are resampled."""
    check(log_probs, y)
    conf, pred = confidence(log_probs)
    residual, b = (pred == y).cpu().double() - conf.cpu(), bin_of(conf.cpu(), equal_width_edges(bins))
    noise = node_noise(residual, b, bins, draws, seeded(generator))
    return interval_of(signed_gaps(residual, b, bins), noise, level)


def block_ece_interval(
    log_probs: Tensor,
    y: Tensor,
    edge_index: Tensor,
    nodes: Tensor,
    bins: int = 20,
    level: float = 0.95,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> tuple[float, float]:
    """As `ece_interval`, with blocks of graph neighbours resampled. Row i of `log_probs` is node `nodes[i]`."""
    check(log_probs, y)
    if nodes.shape != y.shape:
        raise ValueError(f"nodes must name one node for each row, {tuple(y.shape)}, got {tuple(nodes.shape)}")
    conf, pred = confidence(log_probs)
    residual, b = (pred == y).cpu().double() - conf.cpu(), bin_of(conf.cpu(), equal_width_edges(bins))
    noise = block_noise(residual, b, bins, edge_index, nodes, draws, seeded(generator))
    return interval_of(signed_gaps(residual, b, bins), noise, level)
