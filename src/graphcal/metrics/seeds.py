"""One method, several seeds, the same test nodes: what to say about the mean over seeds.

Ten seeds measured on the same 1,000 nodes are not 10,000 nodes: the labels are the same each time. So nodes are
resampled for all seeds together. The mean ECE over R seeds is a sum of absolute values over R·B cells,
    1/R Σ_r Σ_b |d_rb|,
so the interval of `intervals` serves unchanged, with the noise of all cells drawn jointly.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphcal.metrics.bins import Reliability, bin_of, confidence, equal_width_edges
from graphcal.metrics.inputs import check
from graphcal.metrics.intervals import interval_of, seeded


def pooled(parts: Sequence[Reliability]) -> Reliability:
    """The mean reliability of several seeds: counts of one test set, not of R of them."""
    return sum(parts[1:], start=parts[0]).divided(len(parts))


def joint_gaps(log_probs: Sequence[Tensor], y: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Residuals (N, R) and cells (N, R): cell r·B + b of a node in bin b of seed r."""
    residuals, cells = [], []
    for r, lp in enumerate(log_probs):
        check(lp, y)
        conf, pred = confidence(lp)
        residuals.append((pred == y).cpu().double() - conf.cpu())
        cells.append(bin_of(conf.cpu(), equal_width_edges(bins)) + r * bins)
    return torch.stack(residuals, 1), torch.stack(cells, 1)


def resampled_gaps(
    residual: Tensor, cell: Tensor, cells: int, draws: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Signed gaps (cells,) of all seeds, each with weight 1/R, and their noise (draws, cells) over resampled nodes."""
    N, R = residual.shape
    by_node = torch.zeros(N, cells, dtype=torch.float64).scatter_(1, cell, residual) / R  # one cell a seed
    d, noise = by_node.mean(dim=0), []
    for rows in torch.arange(draws).split(max(1, 4_000_000 // N)):
        again = torch.randint(N, (len(rows), N), generator=generator)
        times = torch.zeros(len(rows), N, dtype=torch.float64).scatter_add_(1, again, torch.ones_like(again).double())
        noise.append(times @ by_node / N - d)
    return d, torch.cat(noise)


def mean_ece_interval(
    log_probs: Sequence[Tensor],
    y: Tensor,
    bins: int = 20,
    level: float = 0.95,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> tuple[float, float]:
    """Interval for the calibration error, averaged over seeds that were measured on the same nodes."""
    residual, cell = joint_gaps(log_probs, y, bins)
    d, noise = resampled_gaps(residual, cell, len(log_probs) * bins, draws, seeded(generator))
    return interval_of(d, noise, level)
