"""Regularised softmax regression by Newton-CG: the convex problem behind vector, matrix and Dirichlet scaling.

    minimise over W (K, C):   mean_n CE(x_n W, y_n) + 1/2 sum_kc ridge_kc (W_kc - centre_kc)^2

with some entries of W held at their centre. The Hessian is never formed; with P = softmax(xW) its product with V is

    H V = x^T [P (xV) - P sum_c P (xV)] / n + ridge V         (products entry by entry)

so each Newton step is a few products of the size of the data, also for 70 classes and 4,970 weights: the Hessian that
`graphcal.engine.linear` writes down and factors, for a handful of parameters, would here have 25 million entries. That is why
there are two solvers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphcal.engine.linear import mean_nll
from graphcal.engine.node_order import kfold


def fit_softmax(
    x: Tensor,
    y: Tensor,
    centre: Tensor,
    ridge: Tensor,
    free: Tensor | None = None,
    start: Tensor | None = None,
) -> Tensor:
    """W (K, C), to machine precision. The result never has a larger objective than ``centre``."""
    x, centre, ridge = x.double(), centre.double(), ridge.double()  # (n, K), (K, C), (K, C)
    n = len(x)
    mask = torch.ones_like(centre) if free is None else free.double()
    target = torch.zeros(n, centre.shape[1], dtype=torch.double, device=x.device).scatter_(1, y[:, None], 1.0)

    def objective(weight: Tensor) -> float:
        return float(mean_nll(x @ weight, y) + 0.5 * (ridge * (weight - centre).square()).sum())

    weight = centre.clone()
    value = objective(weight)
    if start is not None and objective(start.double()) < value:
        weight = start.double().clone()
        value = objective(weight)
    for _ in range(100):
        probs = (x @ weight).softmax(-1)  # (n, C)
        gradient = mask * (x.T @ (probs - target) / n + ridge * (weight - centre))
        curvature = mask * (x.square().T @ (probs * (1 - probs)) / n + ridge) + (1 - mask)
        step = _conjugate_gradient(x, probs, ridge, mask, gradient, curvature)
        decrease = float((gradient * step).sum())
        if decrease < 1e-16 * (1 + abs(value)):
            break
        size, trial = 1.0, weight - step
        trial_value = objective(trial)
        while trial_value > value - 1e-4 * size * decrease and size > 1e-12:
            size *= 0.5
            trial = weight - size * step
            trial_value = objective(trial)
        if trial_value >= value:
            break
        weight, value = trial, trial_value
    return weight


def _conjugate_gradient(
    x: Tensor, probs: Tensor, ridge: Tensor, mask: Tensor, gradient: Tensor, curvature: Tensor
) -> Tensor:
    """H^-1 gradient, as precisely as the gradient is small (superlinear convergence of the outer steps)."""
    n = len(x)
    residual = gradient.clone()
    step = torch.zeros_like(gradient)
    scaled = residual / curvature
    direction = scaled.clone()
    rho = first = float((residual * scaled).sum())
    tolerance = first * min(1e-2, first)
    for _ in range(250):
        if rho <= tolerance or rho == 0.0:
            break
        moved = x @ direction
        product = mask * (x.T @ (probs * (moved - (probs * moved).sum(-1, keepdim=True))) / n + ridge * direction)
        bend = float((direction * product).sum())
        if bend <= 0.0:
            break
        alpha = rho / bend
        step += alpha * direction
        residual -= alpha * product
        scaled = residual / curvature
        rho, previous = float((residual * scaled).sum()), rho
        direction = scaled + (rho / previous) * direction
    return step if bool(step.any()) else gradient / curvature


def identity_start(classes: int) -> Tensor:
    """[I; 0]: a matrix that changes nothing, and its bias in the last row."""  # (C + 1, C)
    return torch.cat([torch.eye(classes, dtype=torch.double), torch.zeros(1, classes, dtype=torch.double)])


def with_intercept(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(x[:, :1])], -1)


def odir_ridge(classes: int, penalty: float, nodes: int) -> Tensor:
    """Ridge of  penalty / (C (C-1)) sum_offdiag A^2 + penalty / C sum b^2  (Kull et al. 2019), on [A; b].

    The diagonal gets the weight of a tenth of one node's loss, so that a separable class cannot run away.
    """
    ridge = torch.full((classes + 1, classes), 2 * penalty / (classes * (classes - 1)), dtype=torch.double)
    ridge[range(classes), range(classes)] = 0.0
    ridge[-1] = 2 * penalty / classes
    return ridge.clamp(min=0.1 / nodes)


def fit_softmax_cv(
    x: Tensor, y: Tensor, penalties: Sequence[float], folds: int, generator: torch.Generator
) -> tuple[Tensor, float]:
    """[A; b] (C + 1, C) with the off-diagonal penalty of smallest cross-validated NLL; and that penalty.

    From the strongest penalty to the weakest, each fit starting from the one before.
    """
    n, classes = len(x), x.shape[1] - 1
    centre = identity_start(classes).to(x.device)
    strong_first = sorted(penalties, reverse=True)
    loss = dict.fromkeys(strong_first, 0.0)
    if len(strong_first) > 1 and n >= 2 * folds:
        for held_out in kfold(n, folds, generator):
            kept = torch.ones(n, dtype=torch.bool, device=x.device)
            kept[held_out] = False
            weight = centre
            for penalty in strong_first:
                ridge = odir_ridge(classes, penalty, n).to(x.device)
                weight = fit_softmax(x[kept], y[kept], centre, ridge, start=weight)
                loss[penalty] += float(mean_nll(x[held_out].double() @ weight, y[held_out])) * len(held_out)
    best = min(strong_first, key=lambda penalty: loss[penalty])  # the strongest of equals
    return fit_softmax(x, y, centre, odir_ridge(classes, best, n).to(x.device)), best
