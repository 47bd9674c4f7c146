"""Proposition 3.3 of the SCAR paper (arXiv:2505.11335) in the form that is true: a larger decay, a smaller final layer.

Let W(lambda) minimise L(W) + lambda/2 ||W||_F^2 for any fixed loss L, here the mean cross-entropy of a linear head on given
representations. Each of two minimisers is at least as good as the other under its own objective; the two inequalities add up to

    (lambda_1 - lambda_2) (||W(lambda_1)||_F^2 - ||W(lambda_2)||_F^2) <= 0

The rows of a minimiser with lambda > 0 sum to zero (s and y both sum to one), and then

    sum_{i<j} ||w_i - w_j||^2 = C ||W||_F^2

so the mean squared distance between class centroids is non-increasing in lambda as well. A single pair need not be: `head_path`
reports them all.

Departures: the paper states it for each pair, and proves it with s and h held fixed while lambda changes and without w_j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import one_hot

from graphcal.core import FinalLayer, Outputs
from graphcal.lab.theory.decomposition import training_errors


@dataclass(frozen=True, eq=False)
class HeadPath:
    """Heads solved to convergence on the same representations, one for each decay."""

    decays: list[float]
    heads: list[FinalLayer]

    @property
    def norms(self) -> list[float]:
        """||W||_F for each decay."""
        return [float(head.weight.norm()) for head in self.heads]

    @property
    def distances(self) -> Tensor:
        """||w_i - w_j|| for each decay."""  # (L, C, C)
        return torch.stack([torch.cdist(head.weight, head.weight) for head in self.heads])

    @property
    def rising_pairs(self) -> list[tuple[int, int]]:
        """Pairs of classes that somewhere on the path move apart although the decay grows."""
        order = sorted(range(len(self.decays)), key=self.decays.__getitem__)
        grows = (self.distances[order].diff(dim=0) > 1e-6).any(0)  # (C, C)
        return [(i, j) for i, j in grows.nonzero().tolist() if i < j]


def head_path(out: Outputs, decays: Sequence[float]) -> HeadPath:
    """Fit the final layer anew on ``out``'s training representations, once for each decay."""
    if not decays or min(decays) <= 0:
        raise ValueError(
            f"decays must be positive numbers (a head without decay has no finite minimum); got {list(decays)}"
        )
    h, _ = training_errors(out)
    y = out.graph.y[out.graph.train_mask]
    return HeadPath(list(decays), [solve_head(h, y, out.num_classes, decay) for decay in decays])


def solve_head(hidden: Tensor, y: Tensor, classes: int, weight_decay: float) -> FinalLayer:
    """The linear head that minimises mean cross-entropy + weight_decay/2 ||W||_F^2; the bias is free.

    A trust-region Newton method in double precision, to a gradient of 1e-9.
    """
    h = torch.cat([hidden.double(), hidden.new_ones(len(hidden), 1, dtype=torch.double)], -1)  # (n, D + 1)
    target = one_hot(y, classes).double()
    decay = torch.full((classes, h.shape[1]), float(weight_decay), dtype=torch.double)
    decay[:, -1] = 0
    shape = decay.shape

    def matrix(flat: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(flat)).view(shape)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight = matrix(flat)
        log_probs = (h @ weight.T).log_softmax(-1)
        value = -(log_probs * target).sum() / len(h) + 0.5 * (decay * weight.square()).sum()
        gradient = (log_probs.exp() - target).T @ h / len(h) + decay * weight
        return float(value), gradient.numpy().ravel()

    def curvature(flat: np.ndarray, direction: np.ndarray) -> np.ndarray:
        s, d = (h @ matrix(flat).T).softmax(-1), matrix(direction)
        change = h @ d.T  # (n, C)
        change = s * (change - (s * change).sum(-1, keepdim=True))
        return (change.T @ h / len(h) + decay * d).numpy().ravel()

    start = np.zeros(decay.numel())
    options = {"gtol": 1e-9, "maxiter": 1000}
    solution = minimize(objective, start, jac=True, hessp=curvature, method="trust-ncg", options=options)
    weight = matrix(solution.x)
    return FinalLayer.from_weight(weight[:, :-1].clone(), weight[:, -1].clone())
