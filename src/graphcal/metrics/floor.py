"""ECE of a perfectly calibrated model on these nodes: the floor, its interval, and a test against it; sample sizes.

Floor.  Were the model calibrated, the number right in bin b is S_b = Σ Bernoulli(c_i), a Poisson-binomial variable, and
    E[ECE] = 1/N Σ_b E|S_b - Σ c_i|.
Its law comes from the characteristic function φ(t) = Π_i (1 - c_i + c_i e^{it}) on a lattice wide enough for the
whole of it; where the variance exceeds 100, or beyond a million nodes, E|S - μ| = σ √(2/π) is right to 0.01 points.

Debiased ECE.  ECE overstates because noise adds to every |acc_b - conf_b|. With acc_b* ~ Normal(acc_b, acc_b(1-acc_b)/n_b),
    ECE_debiased = ECE - (E[ECE*] - ECE),   E|X| = σ√(2/π) e^{-m²/2σ²} + m(1 - 2Φ(-m/σ))  for X ~ Normal(m, σ²)
(Kumar, Liang & Ma 2019, arXiv:1909.10155, Appendix; there by simulation, here in closed form). It removes about half of
the bias: on a calibrated model some 0.6 of the floor remains, on one that is moderately off it corrects a little too far.

Test.  Draw right_i ~ Bernoulli(c_i) many times and see where the observed statistic stands among the drawn ones
(consistency resampling: Bröcker & Smith 2007; Vaicenavicius et al. 2019, arXiv:1902.06977),
    p = (1 + #{drawn >= observed}) / (1 + draws).
"cumulative", the largest cumulated difference with nodes sorted by confidence, max_k |1/N Σ_{i <= k} (right_i - c_i)| (ECCE-MAD
of Arrieta-Ibarra et al. 2022, arXiv:2205.09680), needs no bins and finds a steady offset sooner: 5 points on 1,000 nodes in 94
of 100 cases, where "ece", the binned statistic, finds it in 78. The p-value is exact up to the number of draws.

Many nodes.  Beyond `inputs.RESAMPLE_UP_TO` nothing is drawn node by node: the sums of the bins are normal with variances
Σ c_i (1 - c_i), and the cumulated difference is a Brownian motion B in the time Σ_{i <= k} c_i (1 - c_i), so that
    P(max |B| > x) = 4 Σ_k (-1)^k Φ(-(2k+1) x),        E max |B| = √(π/2).

Number of test nodes.  The sampling error of a comparison shrinks as 1/√N. A difference Δ is seen (two-sided level 1 - α) with
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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from graphcal.metrics import inputs
from graphcal.metrics.bins import (
    BINS,
    Reliability,
    bin_of,
    checked_confidence,
    equal_width_edges,
    outcomes,
    reliability,
    tally,
)

NORMAL_FROM = 100.0  # variance beyond which E|S - μ| = σ √(2/π) is right to one part in a thousand
MANY_NODES = 1_000_000  # beyond this a bin's whole share is below 0.001 points
STATISTICS = ("cumulative", "ece")
ROUNDING = (
    1e-12  # two statistics closer than this are equal: sums of the same numbers in another order differ by as much
)


def seeded(generator: torch.Generator | None) -> torch.Generator:
    """The generator given, or one that starts at 0, so that a figure is the same each time it is computed."""
    return torch.Generator().manual_seed(0) if generator is None else generator


def mean_abs_deviation(conf: Tensor) -> float:
    """E|S - E S| of S = Σ_i Bernoulli(conf_i), from the exact law of S."""
    mu, var = float(conf.sum()), float((conf * (1 - conf)).sum())
    if len(conf) == 0 or var == 0.0:
        return 0.0
    if var > NORMAL_FROM:
        return math.sqrt(2 * var / math.pi)
    # S lies within μ ± (12 σ + 20) but for a chance below 1e-12: a lattice of that width has no aliasing
    low = max(0, math.floor(mu - 12 * math.sqrt(var) - 20))
    high = min(len(conf), math.ceil(mu + 12 * math.sqrt(var) + 20))
    M = high - low + 1
    k = torch.arange(M // 2 + 1, dtype=torch.float64)
    phase = torch.polar(torch.ones_like(k), -2 * math.pi * k / M)  # (K,)  e^{-it}
    phi = torch.ones_like(phase)
    for part in conf.split(4096):
        phi = phi * (1 + part[:, None] * (phase - 1)).prod(dim=0)
    shift = torch.polar(torch.ones_like(k), 2 * math.pi * k * low / M)
    law = torch.fft.irfft(phi * shift, n=M).clamp(min=0)  # (M,)  P(S = low + s)
    s = low + torch.arange(M, dtype=torch.float64)
    return float((law * (s - mu).abs()).sum() / law.sum())


def floor_of(conf: Tensor, edges: Tensor) -> float:
    """Expected ECE of a calibrated model with these confidences in these bins."""
    conf = conf.cpu().double()
    return float(abs_deviations(conf, bin_of(conf, edges), len(edges) - 1).sum()) / len(conf)


def abs_deviations(conf: Tensor, cell: Tensor, cells: int) -> Tensor:
    """(cells,) E|S - E S| of the number right in each cell, were the model calibrated."""
    var = torch.bincount(cell, weights=conf * (1 - conf), minlength=cells)
    deviations = (2 * var / math.pi).sqrt()
    if len(conf) <= MANY_NODES:
        few = (var > 0) & (var <= NORMAL_FROM)
        inside = few[cell].nonzero()[:, 0]
        inside = inside[cell[inside].argsort(stable=True)]
        size = torch.bincount(cell[inside], minlength=cells)[few].tolist()
        for k, values in zip(few.nonzero()[:, 0].tolist(), conf[inside].split(size)):
            deviations[k] = mean_abs_deviation(values)
    return deviations


def ece_floor(log_probs: Tensor, bins: int = BINS) -> float:
    """The ECE expected of a perfectly calibrated model with these confidences on this many nodes."""
    return floor_of(checked_confidence(log_probs), equal_width_edges(bins))


def expected_abs_normal(mean: Tensor, sd: Tensor) -> Tensor:
    """E|X| for X ~ Normal(mean, sd²), and |mean| where sd = 0."""
    safe = sd.clamp(min=1e-300)
    z = mean / safe
    folded = safe * math.sqrt(2 / math.pi) * torch.exp(-0.5 * z**2) + mean * torch.erf(z / math.sqrt(2))
    return torch.where(sd > 0, folded, mean.abs())


def debiased_of(rel: Reliability) -> float:
    """Debiased ECE of a reliability table."""
    full = rel.count > 0
    n, acc, gap, N = rel.count[full], rel.accuracy[full], rel.gap[full], rel.count.sum()
    sd = (acc * (1 - acc) / n).sqrt() * n / N
    biased = float(gap.abs().sum())
    return 2 * biased - float(expected_abs_normal(gap, sd).sum())


def ece_debiased(log_probs: Tensor, y: Tensor, bins: int = BINS) -> float:
    """ECE minus the bias that sampling noise puts into it (Kumar et al. 2019)."""
    return debiased_of(reliability(log_probs, y, bins))


def cumulative_error(residual: Tensor) -> Tensor:
    """Largest cumulated difference; nodes along the last axis, sorted by confidence."""
    return residual.cumsum(dim=-1).abs().amax(dim=-1) / residual.shape[-1]


def binned_error(residual: Tensor, member: Tensor) -> Tensor:
    """ECE; `member` (N, B) is one where a node is in a bin."""
    return (residual @ member).abs().sum(dim=-1) / residual.shape[-1]


def binned_gaps(residual: Tensor, b: Tensor, bins: int) -> Tensor:
    """(B,) signed gaps of residuals in bins."""
    return torch.bincount(b, residual, minlength=bins) / len(residual)


def bin_members(conf: Tensor, bins: int) -> Tensor:
    """(N, B) one where a node is in a bin."""
    return torch.nn.functional.one_hot(bin_of(conf, equal_width_edges(bins)), bins).double()


def draw_calibrated(conf: Tensor, draws: int, generator: torch.Generator, f: Callable[[Tensor], Tensor]) -> Tensor:
    """f of the differences right - c in `draws` calibrated drawings, a few million numbers at a time."""
    deviations = []
    for part in torch.arange(draws).split(max(1, 4_000_000 // len(conf))):
        right = torch.rand(len(part), len(conf), generator=generator, dtype=torch.float64) < conf
        deviations.append(f(torch.where(right, 1 - conf, -conf)))
    return torch.cat(deviations)


def draw_errors(conf: Tensor, bins: int, draws: int, generator: torch.Generator) -> Tensor:
    """(draws,) ECE of calibrated drawings; of many nodes from the normal law of each bin's sum."""
    if len(conf) <= inputs.RESAMPLE_UP_TO:
        member = bin_members(conf, bins)
        return draw_calibrated(conf, draws, generator, lambda residual: binned_error(residual, member))
    var = torch.bincount(bin_of(conf, equal_width_edges(bins)), conf * (1 - conf), minlength=bins)
    noise = torch.randn(draws, bins, generator=generator, dtype=torch.float64)
    return (noise.abs() @ var.sqrt()) / len(conf)


def brownian_max_sf(x: float) -> float:
    """P(max |B(t)| > x) of a Brownian motion on [0, 1], by reflection."""
    terms = ((-1) ** k * float(ndtr(-(2 * k + 1) * x)) for k in range(100))
    return 1.0 if x < 0.2 else min(1.0, 4 * sum(terms))


def floor_interval(
    log_probs: Tensor,
    bins: int = BINS,
    level: float = 0.95,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> tuple[float, float]:
    """Interval that holds the ECE of a perfectly calibrated model with these confidences with probability `level`."""
    drawn = draw_errors(checked_confidence(log_probs), bins, draws, seeded(generator))
    low, high = drawn.quantile(torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)).tolist()
    return low, high


@dataclass(frozen=True)
class CalibrationTest:
    """A small p-value says: a calibrated model would hardly look like this."""

    p: float
    observed: float
    expected: float  # mean of the statistic for a calibrated model
    statistic: str
    draws: int  # 0: from the law of a Brownian motion

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def calibration_test(
    log_probs: Tensor,
    y: Tensor,
    statistic: str = "cumulative",
    bins: int = BINS,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> CalibrationTest:
    """p-value of the hypothesis that the confidences are the chances of being right."""
    conf, right = outcomes(log_probs, y)
    if statistic not in STATISTICS:
        raise ValueError(f"statistic must be one of {', '.join(STATISTICS)}, got {statistic!r}")
    conf, order = conf.sort(stable=True)
    residual, N = right[order] - conf, len(conf)
    generator = seeded(generator)
    if statistic == "ece":
        observed = float(binned_gaps(residual, bin_of(conf, equal_width_edges(bins)), bins).abs().sum())
        drawn = draw_errors(conf, bins, draws, generator)
    else:
        observed = float(cumulative_error(residual))
        if N > inputs.RESAMPLE_UP_TO:
            sd = math.sqrt(float((conf * (1 - conf)).sum())) / N
            p = brownian_max_sf(observed / sd) if sd > 0 else float(observed <= ROUNDING)
            return CalibrationTest(p, observed, sd * math.sqrt(math.pi / 2), statistic, 0)
        drawn = draw_calibrated(conf, draws, generator, cumulative_error)
    p = (1 + int((drawn >= observed - ROUNDING).sum())) / (1 + draws)
    return CalibrationTest(p, observed, float(drawn.mean()), statistic, draws)


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
