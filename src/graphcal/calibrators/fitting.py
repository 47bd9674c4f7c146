"""Solvers shared by calibrators: exact minimisers for the convex problems that calibration is made of.

Most calibrations that keep predictions are logits linear in a few parameters,

    z'_n = base_n + sum_k theta_k * terms_nk        base (N, C), terms (N, C, K)

and the validation NLL is then convex in theta. `fit_linear` solves it by damped Newton to machine precision: a handful of
iterations of K x K systems, independent of any learning rate.
"""

from __future__ import annotations

import torch
from torch import Tensor


def nll_of(logits: Tensor, y: Tensor) -> Tensor:
    """Mean negative log-likelihood of logits (n, C) under labels (n,)."""
    return -(logits.gather(-1, y[:, None]).squeeze(-1) - logits.logsumexp(-1)).mean()


def fit_linear(
    base: Tensor,
    terms: Tensor,
    y: Tensor,
    ridge: Tensor | float = 0.0,
    start: Tensor | None = None,
    guess: Tensor | None = None,
) -> Tensor:
    """theta (K,) that minimises NLL(base + terms @ theta, y) + 1/2 sum_k ridge_k (theta_k - start_k)^2.

    Newton with backtracking, from ``guess`` (default: ``start``). Columns are put on one scale first, because a Gram column
    of SCAR and a logit differ by orders of magnitude. A tiny ridge keeps flat directions (two equal terms) from running away.
    Where the model is right on every node that a column speaks for, NLL falls without end as confidence grows: those nodes
    get Platt's smoothed targets, as if one of n + 2 had been wrong.
    """
    base, terms = base.double(), terms.double()  # (n, C), (n, C, K)
    n, classes, k = terms.shape
    centre = terms.new_zeros(k) if start is None else start.double()
    contrast = terms - terms.mean(1, keepdim=True)  # softmax does not see what is common to all classes
    scale = contrast.square().mean((0, 1)).sqrt()
    alive = scale > 1e-12 * float(base.abs().max().clamp(min=1.0))
    scale = torch.where(alive, scale, torch.ones_like(scale))
    flat = (contrast / scale).reshape(n * classes, k)
    penalty = torch.as_tensor(ridge, dtype=torch.double, device=base.device).expand(k) / scale.square() + 1e-10
    theta0 = centre * scale
    theta = theta0.clone() if guess is None else guess.double() * scale

    target = platt_targets(y, base + (flat @ theta0).view(n, classes), contrast)  # (n, C)
    observed = target.reshape(-1) @ flat / n  # (K,)

    def at(t: Tensor) -> tuple[Tensor, Tensor]:
        z = base + (flat @ t).view(n, classes)
        return z, soft_nll(z, target) + 0.5 * (penalty * (t - theta0).square()).sum()

    z, value = at(theta)
    for _ in range(100):
        probs = z.softmax(-1)  # (n, C)
        weighted = flat * probs.view(-1, 1)
        mean = weighted.view(n, classes, k).sum(1)  # (n, K)
        gradient = mean.mean(0) - observed + penalty * (theta - theta0)
        hessian = (weighted.T @ flat - mean.T @ mean) / n + torch.diag(penalty)
        step = torch.linalg.solve(hessian, gradient)
        decrease = float(gradient @ step)
        if decrease < 1e-18 * (1 + abs(float(value))):
            break
        size, trial = 1.0, theta - step
        z, trial_value = at(trial)
        while trial_value > value - 1e-4 * size * decrease and size > 1e-12:
            size *= 0.5
            trial = theta - size * step
            z, trial_value = at(trial)
        if trial_value >= value:
            break  # no float64 improvement left
        theta, value = trial, trial_value
    return torch.where(alive, theta / scale, centre)


def soft_nll(z: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of logits (n, C) under target probabilities (n, C)."""
    return (z.logsumexp(-1) - (target * z).sum(-1)).mean()


def platt_targets(y: Tensor, z: Tensor, contrast: Tensor) -> Tensor:
    """One-hot labels, smoothed on the nodes of every column (n, C, K) whose nodes the model z gets all right."""  # (n, C)
    classes = z.shape[1]
    wrong = z.argmax(-1) != y  # (n,)
    spoken_for = contrast.abs().amax(1) > 0  # (n, K)
    all_right = ~(spoken_for & wrong[:, None]).any(0)  # (K,)
    count = spoken_for.sum(0)
    share = torch.where(all_right, 1.0 / (count + 2), torch.zeros_like(count, dtype=torch.double))
    smooth = (spoken_for * share).amax(1, keepdim=True)  # (n, 1)
    one_hot = torch.nn.functional.one_hot(y, classes).double()
    return one_hot * (1 - smooth) + (1 - one_hot) * smooth / (classes - 1)


def folds(count: int, parts: int, generator: torch.Generator) -> list[Tensor]:
    """Index sets of a random partition of 0..count-1 into ``parts`` of nearly equal size."""
    order = torch.randperm(count, generator=generator)
    return [order[i::parts] for i in range(parts)]
