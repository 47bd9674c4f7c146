"""Compare methods in pairs, on the same nodes and the same seeds.

NLL, Brier and accuracy are means over nodes: the difference of every node is averaged over seeds, and nodes are
resampled. ECE is not a mean; what is compared is what tables compare, the ECE measured on so many nodes:

    Δ = E[ECE_A] - E[ECE_B] over test sets of this size,    estimated by ECE_A - ECE_B, which has no bias for it.

Its sampling error comes from resampled nodes, the same for all methods and seeds. ECE = Σ_b |δ_b + ε_b| with true gaps δ
and noise ε. Resampling around the observed gaps d = δ + ε would add noise to noise: the error of small gaps would look a fifth
too large. Noise is therefore added to gaps δ' from which most of the noise is removed (`intervals.smoothed_gaps`):

    error* = Σ_b |δ'_b + ε*_b| - mean.

On 1,000 nodes and two models of equal expected ECE the test at 5 % then rejects in 3 to 5 % of the cases (2 % around d). Where
one is over-confident and the other under-confident, both by about the noise, it rejects in about 9 %, as it does around d. The
difference of the true errors cannot be had this way: two calibrators that move all confidences a little apart differ by less
than the noise they share.
Where several seeds were run, the scatter of the seeds' differences (resampled seeds) is added.
p-values are two-sided and count a draw within rounding of the observed difference on both sides, and gaps are added node by node,
so that a method never differs from itself (a product of matrices adds equal columns in different orders). `holm` corrects
p-values that are read together (Holm 1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphcal.metrics import inputs
from graphcal.metrics.bins import BINS
from graphcal.metrics.floor import ROUNDING, seeded
from graphcal.metrics.inputs import check, per_seed
from graphcal.metrics.intervals import (
    drawn_normal,
    noise_of,
    resampled_noise,
    residuals_of,
    signed_gaps,
    smoothed_gaps,
)
from graphcal.metrics.scores import brier_terms, nll_terms

COMPARED = ("ece", "nll", "brier", "accuracy")


@dataclass(frozen=True)
class Comparison:
    """Metric of A minus metric of B, on the same nodes and seeds."""

    metric: str
    difference: float
    low: float
    high: float
    p: float
    level: float
    nodes: int
    seeds: int
    sd: float  # of the difference, from resampling

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def seed_noise(by_seed: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """(draws,) changes of the mean difference when the seeds are drawn again; 0 with one seed."""
    R = len(by_seed)
    if R == 1:
        return torch.zeros(draws, dtype=torch.float64)
    again = torch.randint(R, (draws, R), generator=generator)
    moved = by_seed[again].mean(dim=1) - by_seed.mean()
    return moved * math.sqrt(R / (R - 1))


def sampling_errors(
    methods: Sequence[Sequence[Tensor]], y: Tensor, metric: str, bins: int, draws: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Metric of each of K methods and R seeds (K, R), and draws (draws, K) of the sampling error of its mean over seeds.

    The nodes of a draw are the same for all methods.
    """
    K, R = len(methods), len(methods[0])
    if metric == "ece":
        return ece_errors(methods, y, bins, draws, generator)
    each = torch.stack([terms(lp, y, metric) for seeds in methods for lp in seeds]).view(K, R, -1)
    by_node, N = each.mean(dim=1).T, each.shape[2]  # (N, K)
    if N > inputs.RESAMPLE_UP_TO:
        return each.mean(dim=2), drawn_normal(by_node.T.cov() / N, draws, generator)
    return each.mean(dim=2), resampled_noise(by_node, draws, generator)


def ece_errors(
    methods: Sequence[Sequence[Tensor]], y: Tensor, bins: int, draws: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """`sampling_errors` of ECE."""
    K, R = len(methods), len(methods[0])
    residual, cell = residuals_of([lp for seeds in methods for lp in seeds], y, bins)  # (N, K R)
    cells = K * R * bins
    d = K * signed_gaps(residual, cell, cells).view(K, R, bins)
    noise = K * noise_of(residual, cell, cells, draws, generator)[1].view(draws, K, R, bins)
    count = torch.bincount(cell.flatten(), minlength=cells).double().view(K, R, bins)
    gaps = torch.stack([smoothed_gaps(d[k], noise[:, k], count[k]) for k in range(K)])
    drawn = (gaps + noise).abs().sum(dim=(2, 3))  # (draws, K)  mean over seeds
    return R * d.abs().sum(dim=2), drawn - drawn.mean(dim=0)


def terms(log_probs: Tensor, y: Tensor, metric: str) -> Tensor:
    """(N,) what each node adds to a metric that is a mean."""
    if metric == "accuracy":
        return (log_probs.argmax(dim=1) == y).double().cpu()
    return (nll_terms if metric == "nll" else brier_terms)(log_probs, y).cpu()


def compare(
    a: Tensor | Sequence[Tensor],
    b: Tensor | Sequence[Tensor],
    y: Tensor,
    metric: str = "ece",
    bins: int = BINS,
    level: float = 0.95,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> Comparison:
    """Metric of `a` minus metric of `b` with interval and p-value; both may hold one tensor or one for each seed."""
    a, b = per_seed(a), per_seed(b)
    if len(a) != len(b) or not a:
        raise ValueError(f"a and b must have the same seeds, one tensor for each; got {len(a)} and {len(b)}")
    if metric not in COMPARED:
        raise ValueError(f"metric must be one of {', '.join(COMPARED)}, got {metric!r}")
    for log_probs in (*a, *b):
        check(log_probs, y)
    generator = seeded(generator)
    by_method, errors = sampling_errors([a, b], y, metric, bins, draws, generator)
    by_seed, error = by_method[0] - by_method[1], errors[:, 0] - errors[:, 1]
    observed = float(by_seed.mean())
    error = error + seed_noise(by_seed, draws, generator)
    low, high = error.quantile(torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)).tolist()
    side = min(int((error >= observed - ROUNDING).sum()), int((error <= observed + ROUNDING).sum()))
    p = min(1.0, 2 * (1 + side) / (1 + draws))
    return Comparison(metric, observed, observed - high, observed - low, p, level, len(y), len(a), float(error.std()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p-values that may be read together; none is smaller than before."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted


def compare_all(
    methods: Mapping[str, Sequence[Tensor]], against: str, y: Tensor, metric: str = "ece", **options: Any
) -> dict[str, Comparison]:
    """Every method against one of them, p-values corrected by Holm for reading them all."""
    if against not in methods:
        raise ValueError(f"against must be one of {', '.join(methods)}, got {against!r}")
    tests = {k: compare(m, methods[against], y, metric, **options) for k, m in methods.items() if k != against}
    return {k: replace(c, p=p) for (k, c), p in zip(tests.items(), holm([c.p for c in tests.values()]))}
