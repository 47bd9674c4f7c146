"""Solvers shared by calibrators: exact minimisers for the convex problems that calibration is made of.

Most calibrations that keep predictions are logits linear in a few parameters,

    z'_n = base_n + sum_k theta_k * terms_nk        base (N, C), terms (N, C, K)

and the validation NLL is then convex in theta. `fit_linear` solves it by damped Newton to machine precision: a handful of
iterations of K x K systems, no learning rate.
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
    """theta (K,) that minimises NLL(base + terms @ theta, y) + 1/2 sum_k ridge_k (theta_k - start_k)^2, from ``guess``."""
    return LinearFit(base, terms, y, start).minimiser(ridge, guess)


class LinearFit:
    """The problem of `fit_linear`, set up once and solved for one ridge or for several.

    Columns are put on one scale first, because a Gram column of SCAR and a logit differ by orders of magnitude. A tiny ridge
    keeps flat directions (two equal terms) from running away. Where the model is right on every node that a column speaks for,
    NLL falls without end as confidence grows: those nodes get Platt's smoothed targets, as if one of n + 2 had been wrong.
    """

    def __init__(self, base: Tensor, terms: Tensor, y: Tensor, start: Tensor | None = None) -> None:
        self.base, terms = base.double(), terms.double()  # (n, C), (n, C, K)
        self.nodes, self.classes, self.columns = terms.shape
        self.start = terms.new_zeros(self.columns) if start is None else start.double()
        contrast = terms - terms.mean(1, keepdim=True)  # softmax does not see what is common to all classes
        scale = contrast.square().mean((0, 1)).sqrt()
        self.alive = scale > 1e-12 * float(self.base.abs().max().clamp(min=1.0))
        self.scale = torch.where(self.alive, scale, torch.ones_like(scale))
        self.flat = (contrast / self.scale).reshape(-1, self.columns)  # (n C, K)
        self.target = platt_targets(y, self.logits(self.start * self.scale), contrast)  # (n, C)
        self.observed = self.target.reshape(-1) @ self.flat / self.nodes  # (K,)

    def logits(self, scaled: Tensor) -> Tensor:
        return self.base + (self.flat @ scaled).view(self.nodes, self.classes)

    def minimiser(self, ridge: Tensor | float = 0.0, guess: Tensor | None = None, precision: float = 1e-18) -> Tensor:
        """Newton with backtracking, until a step would lower the objective by less than ``precision`` of itself.

        Each step squares what the one before it left: after a full one that gained less than sqrt(precision) none follows.
        """
        penalty = torch.as_tensor(ridge, dtype=torch.double, device=self.base.device) / self.scale.square() + 1e-10
        centre = self.start * self.scale
        theta = centre.clone() if guess is None else guess.double() * self.scale

        def at(t: Tensor) -> tuple[Tensor, float]:
            log_probs = self.logits(t).log_softmax(-1)
            loss = -torch.dot(log_probs.view(-1), self.target.view(-1)) / self.nodes
            return log_probs, float(loss + 0.5 * torch.dot(penalty, (t - centre).square()))

        log_probs, value = at(theta)
        for _ in range(100):
            weighted = self.flat * log_probs.exp().view(-1, 1)
            mean = weighted.view(self.nodes, self.classes, self.columns).sum(1)  # (n, K)
            gradient = mean.mean(0) - self.observed + penalty * (theta - centre)
            hessian = (weighted.T @ self.flat - mean.T @ mean) / self.nodes
            hessian.diagonal().add_(penalty)
            step = torch.linalg.solve(hessian, gradient)
            decrease = float(gradient @ step)
            if decrease < precision * (1 + abs(value)):
                break
            size, trial = 1.0, theta - step
            log_probs, trial_value = at(trial)
            while trial_value > value - 1e-4 * size * decrease and size > 1e-12:
                size *= 0.5
                trial = theta - size * step
                log_probs, trial_value = at(trial)
            if trial_value >= value:
                break  # no float64 improvement left
            theta, value = trial, trial_value
            if size == 1.0 and decrease < precision**0.5:
                break
        return torch.where(self.alive, theta / self.scale, self.start)


def soft_nll(z: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of logits (n, C) under target probabilities (n, C)."""
    return (z.logsumexp(-1) - (target * z).sum(-1)).mean()


def platt_targets(y: Tensor, z: Tensor, contrast: Tensor) -> Tensor:
    """One-hot labels, smoothed on the nodes of every column (n, C, K) whose nodes the model z gets all right."""  # (n, C)
    classes = z.shape[1]
    one_hot = torch.nn.functional.one_hot(y, classes).double()
    wrong = z.argmax(-1) != y  # (n,)
    all_right = ~(contrast[wrong].abs().amax(1) > 0).any(0)  # (K,)
    if not all_right.any():
        return one_hot
    spoken_for = contrast.abs().amax(1) > 0  # (n, K)
    count = spoken_for.sum(0)
    share = torch.where(all_right, 1.0 / (count + 2), torch.zeros_like(count, dtype=torch.double))
    smooth = (spoken_for * share).amax(1, keepdim=True)  # (n, 1)
    return one_hot * (1 - smooth) + (1 - one_hot) * smooth / (classes - 1)


def folds(count: int, parts: int, generator: torch.Generator) -> list[Tensor]:
    """Index sets of a random partition of 0..count-1 into ``parts`` of nearly equal size."""
    order = torch.randperm(count, generator=generator)
    return [order[i::parts] for i in range(parts)]
