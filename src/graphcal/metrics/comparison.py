"""Is A better than B? Compared in pairs, on the same nodes and the same seeds.

NLL, Brier and accuracy are means over nodes: the difference of every node is averaged over seeds, and nodes are
resampled. ECE is not a mean; what is compared is what tables compare, the ECE measured on so many nodes:

    Δ = E[ECE_A] - E[ECE_B] over test sets of this size,    estimated by ECE_A - ECE_B, which has no bias for it.

Its sampling error is that of resampled nodes around their own mean, (ECE*_A - ECE*_B) - mean(ECE*_A - ECE*_B), the same
nodes for both methods and all seeds. (The difference of the true errors cannot be had this way: two calibrators that
move all confidences a little apart differ by less than the noise they share.)
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
from graphcal.metrics.floor import ROUNDING, seeded
from graphcal.metrics.inputs import check, per_seed
from graphcal.metrics.intervals import noise_of, residuals_of, signed_gaps
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


def ece_error(
    a: Sequence[Tensor], b: Sequence[Tensor], y: Tensor, bins: int, draws: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """ECE_A - ECE_B of each seed, and draws of the sampling error of their mean."""
    R = len(a)
    gaps = (*residuals_of([*a, *b], y, bins), 2 * R * bins)
    d, noise = noise_of(*gaps, draws, generator)  # (2 R B,), (draws, 2 R B)
    each = 2 * R * signed_gaps(*gaps).view(2, R, bins).abs().sum(dim=2)  # (2, R)  ECE of each model
    again = 2 * (d + noise).view(draws, 2, R * bins).abs().sum(dim=2)  # (draws, 2)  mean over seeds
    difference = again[:, 0] - again[:, 1]
    return each[0] - each[1], difference - difference.mean()


def mean_error(differences: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Draws of the sampling error of a mean over nodes. `differences` (N,)."""
    N = len(differences)
    if N > inputs.RESAMPLE_UP_TO:
        return torch.randn(draws, generator=generator, dtype=torch.float64) * differences.std() / math.sqrt(N)
    parts = torch.arange(draws).split(max(1, 4_000_000 // N))
    again = [differences[torch.randint(N, (len(k), N), generator=generator)].mean(dim=1) for k in parts]
    return torch.cat(again) - differences.mean()


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
    bins: int = 20,
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
    if metric == "ece":
        by_seed, error = ece_error(a, b, y, bins, draws, generator)
    else:
        each = torch.stack([terms(p, y, metric) - terms(q, y, metric) for p, q in zip(a, b)])  # (R, N)
        by_seed, error = each.mean(dim=1), mean_error(each.mean(dim=0), draws, generator)
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
    found = {k: compare(m, methods[against], y, metric, **options) for k, m in methods.items() if k != against}
    return {k: replace(c, p=p) for (k, c), p in zip(found.items(), holm([c.p for c in found.values()]))}
