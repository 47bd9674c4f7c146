"""Rare classes and prior shift: probabilities for the share of classes that is met, not the one that was trained on.

Known rates. Training with class weights w, or keeping a share w_c of the nodes of class c, learns p'(c|x) ∝ w_c p(c|x), so
    log p = log p' - log w            (`undo_weights`)        log p + log(π / ρ)   from prior ρ to prior π   (`move_prior`)
Focal loss of exponent γ learns v with  p ∝ v / ((1-v)^γ - γ (1-v)^{γ-1} v log v)   (Charoenphakdee et al., arXiv:2011.09172).

Unknown rates. When only the prior moves, p(x|c) stays, and the new prior π of unlabelled nodes maximises their likelihood: EM on
calibrated probabilities (Saerens et al. 2002; hard to beat once calibrated: Alexandari et al. 2020, arXiv:1901.06852),
    p_i(c) ∝ (π_c / ρ_c) p'_i(c),        π = mean_i p_i.
Intervals by bootstrap over labelled and unlabelled nodes. A test says when the shift is of another kind: if p(x|c) stays, the
new nodes fall into cells of (predicted class, confidence) as labelled ones of each class do, mixed by π. Its null distribution is
simulated from the labelled nodes themselves; at p <= 0.01 the estimate is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcal.decisions.bounds import Array
from graphcal.decisions.decision import Interval
from graphcal.metrics.inputs import check, check_log_probs

CELLS, MOST = 4, 2000  # confidence cells per predicted class; nodes in a bootstrap draw
REFUSED = 0.01


def undo_weights(log_probs: Tensor, weights: Sequence[float] | Tensor) -> Tensor:
    """Probabilities as if the classes had not been weighted, or not been sampled at these rates, in training.

    >>> half = torch.tensor([[0.5, 0.5]]).log()
    >>> [round(p, 3) for p in undo_weights(half, [1.0, 9.0]).exp()[0].tolist()]      # class 1 counted nine times
    [0.9, 0.1]
    """
    check_log_probs(log_probs)
    return (log_probs - _positive(weights, log_probs, "weights").log()).log_softmax(dim=1)


def move_prior(log_probs: Tensor, trained: Sequence[float] | Tensor, deployed: Sequence[float] | Tensor) -> Tensor:
    """Move probabilities from the prior ρ of training to the prior π of use."""
    check_log_probs(log_probs)
    rho, pi = _positive(trained, log_probs, "trained"), _positive(deployed, log_probs, "deployed")
    return (log_probs + (pi / pi.sum()).log() - (rho / rho.sum()).log()).log_softmax(dim=1)


def undo_focal(log_probs: Tensor, gamma: float) -> Tensor:
    """Probabilities behind a model trained with focal loss of this exponent; it would otherwise be under-confident."""
    check_log_probs(log_probs)
    if gamma < 0:
        raise ValueError(f"gamma must be at least 0, got {gamma}")
    log_v = log_probs.double().clamp(min=-50, max=-1e-12)
    v = log_v.exp()
    slope = (1 - v) ** gamma - gamma * (1 - v) ** (gamma - 1) * v * log_v
    return (log_v - slope.log()).log_softmax(dim=1).to(log_probs)


def _positive(values: Sequence[float] | Tensor, log_probs: Tensor, name: str) -> Tensor:
    numbers = torch.as_tensor(values, dtype=log_probs.dtype)
    if numbers.shape != (log_probs.shape[1],) or not bool((numbers > 0).all()):
        raise ValueError(f"{name} must be {log_probs.shape[1]} positive numbers, one per class; got {numbers.tolist()}")
    return numbers


@dataclass(frozen=True)
class PriorEstimate:
    """The share of each class among unlabelled nodes, and their expected number, with intervals."""

    prior: tuple[Interval, ...]
    count: tuple[Interval, ...]
    p: float  # of "only the prior has moved"
    certainty: float
    nodes: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "prior": [one.to_dict() for one in self.prior],
            "count": [one.to_dict() for one in self.count],
            "p": self.p,
            "certainty": self.certainty,
            "nodes": self.nodes,
        }


def estimate_prior(
    log_probs: Tensor,
    labelled: Tensor,
    y: Tensor,
    certainty: float = 0.95,
    draws: int = 200,
    seed: int = 0,
) -> PriorEstimate:
    """The prior of unlabelled nodes with calibrated ``log_probs`` (m, C), from ``labelled`` ones (n, C) with labels ``y``.

    The labelled nodes are of the time of fitting, a fair draw of it: their class shares are the old prior. Refused when a test
    says that more than the prior has changed.
    """
    check_log_probs(log_probs)
    check(labelled, y)
    new, old, label = log_probs.double().exp().numpy(), labelled.double().exp().numpy(), y.numpy()
    C, rng = new.shape[1], np.random.default_rng(seed)
    seen = np.bincount(label, minlength=C)
    if (seen == 0).any():
        raise ValueError(
            f"no labelled node of class {int(seen.argmin())}: its share among unlabelled nodes cannot be told"
        )
    prior = em_prior(new, seen / seen.sum())
    p = shift_p_value(new, old, label, prior, draws, rng)
    if p <= REFUSED:
        raise ValueError(
            f"more than the prior has changed (p = {p:.3f}): nodes of the same class look different now, so the share of classes "
            "cannot be read off old probabilities. Label a random sample of the new nodes and calibrate again"
        )
    pairs = [_redraw(new, label, C, rng) for _ in range(draws)]
    shares, counts = (np.stack(part) for part in zip(*pairs))
    ends = [(1 - certainty) / 2, (1 + certainty) / 2]
    m = len(new)

    def intervals(values: Array, middle: Array) -> tuple[Interval, ...]:
        low, high = np.quantile(values, ends, axis=0)
        return tuple(Interval(*map(float, one)) for one in zip(middle, low, high))

    return PriorEstimate(intervals(shares, prior), intervals(counts * m, prior * m), p, certainty, m)


def em_prior(probs: Array, old: Array, steps: int = 200) -> Array:
    """The prior (C,) with the highest likelihood of unlabelled nodes, from probabilities under the prior ``old``."""
    prior = old.copy()
    for _ in range(steps):
        weighted = probs * (prior / old)
        weighted /= weighted.sum(axis=1, keepdims=True)
        moved = weighted.mean(axis=0)
        if np.abs(moved - prior).max() < 1e-5:
            return np.asarray(moved)
        prior = np.maximum(moved, 1e-12)
    return np.asarray(prior)


def _redraw(new: Array, label: Array, C: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Prior and share of labels, drawn from the probabilities, of one bootstrap draw of both kinds of nodes."""
    rows = rng.integers(len(new), size=min(len(new), MOST))
    old = np.bincount(rng.choice(label, len(label)), minlength=C) + 0.5
    old = old / old.sum()
    prior = em_prior(new[rows], old)
    weighted = new[rows] * (prior / old)
    weighted /= weighted.sum(axis=1, keepdims=True)
    drawn = (weighted.cumsum(axis=1) < rng.random((len(rows), 1))).sum(axis=1)
    return prior, np.bincount(np.minimum(drawn, C - 1), minlength=C) / len(rows)


def shift_p_value(new: Array, old: Array, label: Array, prior: Array, draws: int, rng: np.random.Generator) -> float:
    """p of "only the prior has moved": distance of cell shares from the labelled nodes' mixture, against simulated draws."""
    size, C = min(len(new), MOST), new.shape[1]
    ends = np.quantile(old.max(axis=1), np.linspace(0, 1, CELLS + 1)[1:-1])
    shares = np.bincount(label, minlength=C) / len(label)
    weight = (prior / shares)[label]
    weight = weight / weight.sum()

    def distance(target: Array, source: Array, source_label: Array, pi: Array) -> float:
        cells = [cells_of(one, ends) for one in (target, source)]
        count = C * CELLS
        mixture = sum(
            pi[c] * np.bincount(cells[1][source_label == c], minlength=count) / max((source_label == c).sum(), 1)
            for c in range(C)
        )
        seen = np.bincount(cells[0], minlength=count) / len(target)
        return float(((seen - mixture) ** 2 / (seen + mixture + 1e-3)).sum())

    observed = distance(new[rng.permutation(len(new))[:size]], old, label, prior)
    larger = 0
    for _ in range(draws):
        target = old[rng.choice(len(old), size, p=weight)]
        rows = rng.integers(len(old), size=len(old))
        counts = np.bincount(label[rows], minlength=C) + 0.5
        pi = em_prior(target, counts / counts.sum(), steps=60)
        larger += distance(target, old[rows], label[rows], pi) >= observed
    return (1 + larger) / (1 + draws)


def cells_of(probs: Array, ends: Array) -> Array:
    """(n,) number of the cell: predicted class × confidence."""
    return np.asarray(probs.argmax(axis=1) * CELLS + np.searchsorted(ends, probs.max(axis=1)))
