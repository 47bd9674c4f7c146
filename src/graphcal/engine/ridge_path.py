"""How strongly to hold many coefficients to a simple solution: a search along ridges, judged by leave-one-out NLL.

    minimise  NLL(X theta) + 1/2 sum_k ridge held_k (theta_k - centre_k)^2

Leave-one-out NLL first falls and then rises as the ridge weakens, so the search walks: from the middle of the ridges to its
stronger neighbour, on in that direction while it gains, otherwise to the weaker ones while they gain. Solutions of neighbouring
ridges are close: one Newton step leads from each to the next, and the softmax and the Hessian computed there serve both the
leave-one-out estimate and the step that follows. The ridge that wins is solved to machine precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcal.engine.leave_one_out import Around
from graphcal.engine.linear import LinearFit


@dataclass(frozen=True)
class Chosen:
    theta: Tensor  # (K,)
    ridge: float
    unseen_nll: float  # leave-one-out


def best_ridge(
    terms: Tensor, y: Tensor, target: Tensor, centre: Tensor, held: Tensor, ridges: Sequence[float]
) -> Chosen:
    """terms X (n, C, K) of unit size; labels y (n,) and as probabilities (n, C); held (K,): 1 where the ridge acts, else 0."""
    search = Search(terms, y, target, centre, held)
    ridges = sorted(ridges, reverse=True)
    middle = len(ridges) // 3
    best, place = search.judged(ridges[middle], search.around(centre)), middle
    for direction in (-1, 1):
        while 0 <= place + direction < len(ridges):
            tried = search.judged(ridges[place + direction], best.here)
            if tried.unseen_nll >= best.unseen_nll:
                break
            best, place = tried, place + direction
        if place != middle:
            break  # it gained in this direction: it would lose in the other
    here = search.solved(ridges[place], best.here)
    return Chosen(here.theta, ridges[place], search.unseen_nll(ridges[place], here))


@dataclass(frozen=True)
class Judged:
    here: Around
    unseen_nll: float


class Search:
    def __init__(self, terms: Tensor, y: Tensor, target: Tensor, centre: Tensor, held: Tensor) -> None:
        self.fit = LinearFit(torch.zeros_like(target), terms, y, centre)
        self.terms = self.fit.flat.view(terms.shape)  # what differs between classes
        self.target, self.centre, self.held = target, centre, held

    def around(self, theta: Tensor) -> Around:
        return Around(self.fit.base, self.terms, self.target, theta)

    def judged(self, ridge: float, near: Around) -> Judged:
        here = self.closer(ridge, near)
        return Judged(here, self.unseen_nll(ridge, here))

    def unseen_nll(self, ridge: float, here: Around) -> float:
        log_probs = here.without_own_label(ridge * self.held).log_softmax(-1)
        return -float(torch.dot(log_probs.view(-1), self.target.view(-1))) / len(self.target)

    def closer(self, ridge: float, here: Around) -> Around:
        """One Newton step nearer to the solution; the solution itself where a full step would lead away from it."""
        there = self.around(here.step(self.centre, ridge * self.held))
        if self.objective(ridge, there) <= self.objective(ridge, here):
            return there
        return self.around(self.fit.minimiser(ridge * self.held, here.theta))

    def solved(self, ridge: float, here: Around) -> Around:
        """Newton steps until one gains less than 1e-8: the next would gain about its square."""
        for _ in range(20):
            before, here = self.objective(ridge, here), self.closer(ridge, here)
            if before - self.objective(ridge, here) < 1e-8:
                break
        return here

    def objective(self, ridge: float, at: Around) -> float:
        penalty = 0.5 * ridge * torch.dot(self.held, (at.theta - self.centre).square())
        return float(at.nll + penalty)
