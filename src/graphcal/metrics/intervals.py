"""An interval for the calibration error, by bootstrap over nodes or over blocks of neighbours; of one seed or of several.

The quantity is the population's binned calibration error, θ = Σ_b |E[(right - c) 1_b]|: what ECE tends to with
these bins and ever more nodes. The plain percentile bootstrap is no interval for it: resampling adds noise to noise,
so on a calibrated model it never contains 0. Here the bootstrap only supplies the noise ε of the signed gaps,

    d_b = 1/N Σ_{i in b} (right_i - c_i),      ε*_b = d*_b - d_b   (d* from resampled nodes),

and the interval collects the θ that the observed ECE, T = Σ|d_b|, does not contradict (a test, inverted):

    θ is in the interval when  q_{α/2}(θ) <= T <= q_{1-α/2}(θ),   q of Σ_b |θ u_b + ε*_b|,   Σ|u_b| = 1.

The θ for which T is the median of what it gives is the median-unbiased estimate, `true_error`: too high as often as too low. ECE
minus its floor is not: noise and error do not add, and it shows 1.6 points of a true 3.6 on 1,000 nodes.
At θ = 0 this is a test of calibration. The shape u of the true gaps is unknown. With ρ = 1 - Σ var(ε_b) / Σ d_b², the
share of the observed gaps that noise does not explain, u is ρ² of the observed shape d/T and 1 - ρ² of the noise's
own shape, sd(ε_b). (ρ² and not ρ: it covers best in simulation; 92-98 % in all cases tried, see the tests.)

Several seeds.  Ten seeds on the same 1,000 nodes are not 10,000 nodes: the labels are the same each time. The mean ECE over R
seeds is a sum over R·B cells, 1/R Σ_r Σ_b |d_rb|, so the same interval serves, with the nodes resampled for all seeds together.

Blocks.  A node and its neighbours are right or wrong together. Every node draws a random number and joins the neighbour (or
itself) with the smallest one; who follow the same leader are a block, and blocks are drawn with replacement. A new partition
is made for every 50 draws.

Many nodes.  Beyond `inputs.RESAMPLE_UP_TO` nothing is drawn node by node: ε* is normal with the covariance that resampling would
have, from sums over nodes, cov = (1/N Σ_i x_i x_i^T - d d^T) / N with x_i what node i adds to the gaps, or, for blocks with sums
s_k and sizes n_k, from sums over blocks, cov = 1/N² Σ_k (s_k - n_k d)(s_k - n_k d)^T, averaged over a few partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from graphcal.metrics import inputs
from graphcal.metrics.bins import BINS, bin_of, equal_width_edges, outcomes
from graphcal.metrics.floor import seeded
from graphcal.metrics.inputs import per_seed

DRAWS_PER_PARTITION = 50
PARTITIONS = 4  # of many nodes: their covariances differ little


def residuals_of(log_probs: Sequence[Tensor], y: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Residuals right - c (N, R) and cells (N, R): cell r·B + b of a node in bin b of seed r."""
    residuals, cells = [], []
    for r, lp in enumerate(log_probs):
        conf, right = outcomes(lp, y)
        residuals.append(right - conf)
        cells.append(bin_of(conf, equal_width_edges(bins)) + r * bins)
    return torch.stack(residuals, 1), torch.stack(cells, 1)


def gaps_by_node(residual: Tensor, cell: Tensor, cells: int) -> Tensor:
    """(N, cells) what each node adds to the signed gaps, each seed with weight 1/R; their mean over nodes is d."""
    return torch.zeros(len(residual), cells, dtype=torch.float64).scatter_(1, cell, residual) / residual.shape[1]


def resampled_noise(by_node: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """ε*: (draws, cells) changes of the signed gaps when the nodes are drawn again with replacement."""
    N, d, noise = len(by_node), by_node.mean(dim=0), []
    for rows in torch.arange(draws).split(max(1, 4_000_000 // N)):
        again = torch.randint(N, (len(rows), N), generator=generator)
        again += N * torch.arange(len(rows))[:, None]  # a place of its own for every draw of every node
        times = torch.bincount(again.flatten(), minlength=again.numel()).view(len(rows), N)
        noise.append(times.double() @ by_node / N - d)
    return torch.cat(noise)


def normal_noise(d: Tensor, second_moment: Tensor, nodes: int, draws: int, generator: torch.Generator) -> Tensor:
    """ε*: (draws, cells) normal with the covariance of resampled nodes; `second_moment` (cells, cells) is over nodes."""
    return drawn_normal((second_moment - torch.outer(d, d)) / nodes, draws, generator)


def drawn_normal(covariance: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """(draws, cells) normal; cells without variance stay 0, and equal cells equal: rounding is not taken for variance."""
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = vectors * torch.where(values > 1e-12 * values[-1], values, 0.0).clamp(min=0).sqrt()
    return torch.randn(draws, len(covariance), generator=generator, dtype=torch.float64) @ root.T


def gap_noise(
    log_probs: Sequence[Tensor], y: Tensor, bins: int, draws: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Signed gaps d (cells,) of all seeds and their noise (draws, cells) when the nodes are drawn again."""
    return noise_of(*residuals_of(log_probs, y, bins), len(log_probs) * bins, draws, generator)


def noise_of(
    residual: Tensor, cell: Tensor, cells: int, draws: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """`gap_noise` of residuals (N, R) in their cells (N, R)."""
    if len(residual) <= inputs.RESAMPLE_UP_TO:
        by_node = gaps_by_node(residual, cell, cells)
        return by_node.mean(dim=0), resampled_noise(by_node, draws, generator)
    d, moment = gap_moments(residual, cell, cells)
    return d, normal_noise(d, moment, len(residual), draws, generator)


def signed_gaps(residual: Tensor, cell: Tensor, cells: int) -> Tensor:
    """d (cells,), each seed with weight 1/R, added node by node: equal predictions have equal gaps to the last bit."""
    return torch.bincount(cell.flatten(), residual.flatten(), minlength=cells) / residual.numel()


def gap_moments(residual: Tensor, cell: Tensor, cells: int) -> tuple[Tensor, Tensor]:
    """Mean (cells,) and second moment (cells, cells) over nodes of what each adds to the signed gaps."""
    N, R = residual.shape
    coordinates = (np.repeat(np.arange(N), R), cell.flatten().numpy())
    by_node = csr_array((residual.flatten().numpy() / R, coordinates), shape=(N, cells))
    return signed_gaps(residual, cell, cells), torch.from_numpy((by_node.T @ by_node).toarray()) / N


def smoothed_gaps(d: Tensor, noise: Tensor, count: Tensor) -> Tensor:
    """Signed gaps `d` (R, B) with most of their sampling noise removed: a line over the bins of each seed, and part of the rest.

    The line is fitted to the residuals by least squares, with `count` (R, B) nodes in the bins. The rest, r = d - line, is
    multiplied by max(0, 1 - Σ var(ε_b) / Σ r_b²), the share of it that its noise does not explain. `noise` is (draws, R, B).
    """
    weight = count / count.sum(dim=-1, keepdim=True)
    bin_number = torch.arange(d.shape[-1], dtype=torch.float64)
    centred = bin_number - (weight * bin_number).sum(dim=-1, keepdim=True)  # (R, B)
    spread = (weight * centred**2).sum(dim=-1, keepdim=True).clamp(min=1e-300)

    def line(gaps: Tensor) -> Tensor:
        slope = (gaps * centred).sum(dim=-1, keepdim=True) / spread
        return weight * (gaps.sum(dim=-1, keepdim=True) + slope * centred)

    rest, rest_noise = d - line(d), noise - line(noise)
    return line(d) + rest * (1 - rest_noise.var(dim=0).sum() / (rest**2).sum().clamp(min=1e-300)).clamp(min=0)


def random_ranks(edge_index: Tensor, num_nodes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A random number of each node (N,), no two equal, and the smallest of its own and its neighbours' (N,)."""
    rank = torch.randperm(num_nodes, generator=generator)
    return rank, rank.scatter_reduce(0, edge_index[0].cpu(), rank[edge_index[1].cpu()], reduce="amin")


def random_blocks(edge_index: Tensor, num_nodes: int, generator: torch.Generator) -> Tensor:
    """(N,) leader of each node: the node with the smallest random number among itself and its neighbours."""
    rank, lowest = random_ranks(edge_index, num_nodes, generator)
    return rank.argsort()[lowest]


def block_noise(by_node: Tensor, edge_index: Tensor, nodes: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """ε*: (draws, cells) changes of the signed gaps when blocks of neighbours are drawn again with replacement.

    `nodes` (N,) are the measured nodes' numbers in the graph of `edge_index`; blocks also form through other nodes.
    """
    counted = torch.cat([by_node, torch.ones(len(by_node), 1, dtype=torch.float64)], 1)  # (N, cells + 1)
    d, size, noise = by_node.mean(dim=0), 1 + int(max(edge_index.max(), nodes.max())), []
    for rows in torch.arange(draws).split(DRAWS_PER_PARTITION):
        _, block = random_blocks(edge_index, size, generator)[nodes.cpu()].unique(return_inverse=True)
        K = int(block.max()) + 1
        sums = torch.zeros(K, counted.shape[1], dtype=torch.float64).index_add_(0, block, counted)
        for _ in rows:
            again = torch.bincount(torch.randint(K, (K,), generator=generator), minlength=K).double() @ sums
            noise.append(again[:-1] / again[-1] - d)
    return torch.stack(noise)


def block_covariance(residual: Tensor, cell: Tensor, block: Tensor, cells: int) -> Tensor:
    """(cells, cells) covariance of the signed gaps when blocks are drawn again, from sums by block and cell."""
    N, R = residual.shape
    coordinates = (block.repeat_interleave(R).numpy(), cell.flatten().numpy())
    sums = csr_array((residual.flatten().numpy() / R, coordinates), shape=(int(block.max()) + 1, cells))  # (K, cells)
    size = torch.bincount(block).double().numpy()
    d = torch.from_numpy(sums.sum(axis=0)) / N
    together, sized = torch.from_numpy((sums.T @ sums).toarray()), torch.from_numpy(sums.T @ size)
    mixed = torch.outer(sized, d)
    return (together - mixed - mixed.T + float(size @ size) * torch.outer(d, d)) / N**2


def many_block_noise(
    residual: Tensor,
    cell: Tensor,
    cells: int,
    edge_index: Tensor,
    nodes: Tensor,
    draws: int,
    generator: torch.Generator,
) -> Tensor:
    """`block_noise` of many nodes: normal, with the mean covariance of a few partitions."""
    size, total = 1 + int(max(edge_index.max(), nodes.max())), torch.zeros(cells, cells, dtype=torch.float64)
    for _ in range(PARTITIONS):
        block = random_ranks(edge_index, size, generator)[1][nodes.cpu()]  # who share it share a leader
        total += block_covariance(residual, cell, block, cells) / PARTITIONS
    return drawn_normal(total, draws, generator)


def gap_shape(d: Tensor, noise: Tensor) -> Tensor:
    """u: how a calibration error of size 1 is shared among the bins, with signs; Σ|u_b| = 1."""
    sd, tiny = noise.std(dim=0), 1e-300
    real = (1 - (sd**2).sum() / (d**2).sum().clamp(min=tiny)).clamp(min=0) ** 2
    sign = torch.where(d < 0, -1.0, 1.0).double()
    u = real * d / d.abs().sum().clamp(min=tiny) + (1 - real) * sign * sd / sd.sum().clamp(min=tiny)
    return u / u.abs().sum().clamp(min=tiny)


def smallest(enough: Callable[[float], bool]) -> float:
    """The smallest θ in [0, 1] that is enough, for a condition that once true stays true."""
    low, high = 0.0, 1.0
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
    log_probs: Tensor | Sequence[Tensor],
    y: Tensor,
    bins: int = BINS,
    level: float = 0.95,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> tuple[float, float]:
    """Interval that contains the binned calibration error (its mean over seeds) with probability `level`; nodes are resampled."""
    return interval_of(*gap_noise(per_seed(log_probs), y, bins, draws, seeded(generator)), level)


def true_error(
    log_probs: Tensor | Sequence[Tensor],
    y: Tensor,
    bins: int = BINS,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> float:
    """Median-unbiased estimate of the binned calibration error (its mean over seeds): what ECE would be on ever more nodes."""
    return error_at(*gap_noise(per_seed(log_probs), y, bins, draws, seeded(generator)), 0.5)


def block_ece_interval(
    log_probs: Tensor | Sequence[Tensor],
    y: Tensor,
    edge_index: Tensor,
    nodes: Tensor,
    bins: int = BINS,
    level: float = 0.95,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> tuple[float, float]:
    """Interval like `ece_interval`, with blocks of graph neighbours resampled. Row i of `log_probs` is node `nodes[i]`."""
    seeds = per_seed(log_probs)
    residual, cell = residuals_of(seeds, y, bins)
    if nodes.shape != y.shape:
        raise ValueError(f"nodes must name one node for each row, {tuple(y.shape)}, got {tuple(nodes.shape)}")
    cells, generator = len(seeds) * bins, seeded(generator)
    if len(y) > inputs.RESAMPLE_UP_TO:
        noise = many_block_noise(residual, cell, cells, edge_index, nodes, draws, generator)
        return interval_of(signed_gaps(residual, cell, cells), noise, level)
    by_node = gaps_by_node(residual, cell, cells)
    return interval_of(by_node.mean(dim=0), block_noise(by_node, edge_index, nodes, draws, generator), level)
