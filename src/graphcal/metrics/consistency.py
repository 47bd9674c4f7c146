"""Is this model calibrated? A test by consistency resampling, and the sampling floor with its own interval.

Were the model calibrated, right_i ~ Bernoulli(c_i), independently. So draw such labels many times and see where the
observed statistic stands among the drawn ones (Bröcker & Smith 2007; Vaicenavicius et al. 2019, arXiv:1902.06977):

    p = (1 + #{drawn >= observed}) / (1 + draws)

Two statistics are offered. "cumulative", the largest cumulated difference with nodes sorted by confidence,
    max_k |S_k|,   S_k = 1/N Σ_{i <= k} (right_i - c_i)
(ECCE-MAD of Arrieta-Ibarra et al. 2022, arXiv:2205.09680), needs no bins and finds a steady offset sooner: 5 points on
1,000 nodes in 94 of 100 cases, where "ece", the binned statistic, finds it in 78. The p-value is exact up to the number of
draws, whatever the statistic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from graphcal.metrics.bins import bin_of, confidence, equal_width_edges
from graphcal.metrics.inputs import check, check_log_probs
from graphcal.metrics.intervals import seeded

STATISTICS = ("cumulative", "ece")


@dataclass(frozen=True)
class CalibrationTest:
    """A small p-value says: a calibrated model would hardly look like this."""

    p: float
    observed: float
    expected: float  # mean of the statistic for a calibrated model
    statistic: str
    draws: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def drawn_residuals(conf: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """(draws, N) differences right - c of a calibrated model with these confidences."""
    return (torch.rand(draws, len(conf), generator=generator, dtype=torch.float64) < conf).double() - conf


def cumulative_error(residual: Tensor) -> Tensor:
    """Largest cumulated difference; nodes along the last axis, sorted by confidence."""
    return residual.cumsum(dim=-1).abs().amax(dim=-1) / residual.shape[-1]


def binned_error(residual: Tensor, member: Tensor) -> Tensor:
    """ECE; `member` (N, B) is one where a node is in a bin."""
    return (residual @ member).abs().sum(dim=-1) / residual.shape[-1]


def resampled(conf: Tensor, draws: int, generator: torch.Generator, f: Callable[[Tensor], Tensor]) -> Tensor:
    """f of `draws` calibrated drawings, a few million numbers at a time."""
    sizes = [len(part) for part in torch.arange(draws).split(max(1, 4_000_000 // len(conf)))]
    return torch.cat([f(drawn_residuals(conf, k, generator)) for k in sizes])


def calibration_test(
    log_probs: Tensor,
    y: Tensor,
    statistic: str = "cumulative",
    bins: int = 20,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> CalibrationTest:
    """p-value of the hypothesis that the confidences are the chances of being right."""
    check(log_probs, y)
    if statistic not in STATISTICS:
        raise ValueError(f"statistic must be one of {', '.join(STATISTICS)}, got {statistic!r}")
    conf, pred = confidence(log_probs)
    conf, order = conf.cpu().sort(stable=True)
    right = (pred == y).cpu()[order].double()
    member = torch.nn.functional.one_hot(bin_of(conf, equal_width_edges(bins)), bins).double()

    def f(residual: Tensor) -> Tensor:
        return cumulative_error(residual) if statistic == "cumulative" else binned_error(residual, member)

    observed = float(f(right - conf))
    drawn = resampled(conf, draws, seeded(generator), f)
    p = (1 + int((drawn >= observed - 1e-12).sum())) / (1 + draws)
    return CalibrationTest(p, observed, float(drawn.mean()), statistic, draws)


def floor_interval(
    log_probs: Tensor,
    bins: int = 20,
    level: float = 0.95,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> tuple[float, float]:
    """Where the ECE of a perfectly calibrated model with these confidences lies with probability `level`."""
    check_log_probs(log_probs)
    conf = confidence(log_probs)[0].cpu()
    member = torch.nn.functional.one_hot(bin_of(conf, equal_width_edges(bins)), bins).double()
    drawn = resampled(conf, draws, seeded(generator), lambda residual: binned_error(residual, member))
    low, high = drawn.quantile(torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)).tolist()
    return low, high
