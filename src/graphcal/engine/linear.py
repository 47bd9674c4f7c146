"""Convex fits: softmax NLL of logits that are linear in a few parameters, with leave-one-out validation and a ridge path.

    z_n = base_n + X_n theta                        base (n, C), terms X (n, C, K), target q (n, C)
    minimise  1/n sum_n CE(q_n, softmax z_n) + 1/2 sum_k ridge_k (theta_k - start_k)^2

With p = softmax(z) and A_n = diag(p_n) - p_n p_n^T, the one Hessian everything here is made of,

    gradient = 1/n sum_n X_n^T (p_n - q_n) + ridge (theta - start)        H = 1/n sum_n X_n^T A_n X_n + diag(ridge)

*Newton's method* with backtracking solves it to machine precision: a handful of K x K systems, no learning rate.

*Leave-one-out.* Dropping node n moves its own logits by one Newton step (Rahnama Rad & Maleki 2020, arXiv:1801.10243):

    z_n without n = z_n + (I - S_n A_n / n)^-1 S_n (p_n - q_n) / n        S_n = X_n H^-1 X_n^T

for about the price of one iteration instead of n fits, without random folds, and exactly for a quadratic loss.

*Targets.* Where a model is right on every node, its NLL falls without end as its confidence grows. Platt (1999) counts one more
node of each outcome: of n nodes that are all right, each is taken to be right with probability 1 - 1 / (n + 2).

*Ridge path.* Leave-one-out NLL first falls and then rises as a ridge weakens, so the search walks along the ridges while it
gains. Solutions of neighbours are close: one Newton step leads from each to the next.

Matrices of parameters, where H would be too large to write down, are for `graphcal.engine.softmax`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphcal.engine.columns import ColumnSet, DenseColumns, contrast

# on coefficients of columns of unit size: two equal columns must not make the Hessian singular
TINY_RIDGE = 1e-10
MOST_SOLVED = 20  # classes of a system that is solved for every node when it is left out
SERIES = 12  # terms otherwise


def fit_linear(
    base: Tensor,
    terms: Tensor,
    y: Tensor,
    ridge: Tensor | float = 0.0,
    start: Tensor | None = None,
    precision: float = 1e-18,
) -> Tensor:
    """theta (K,) that minimises NLL(base + terms @ theta, y) + 1/2 sum_k ridge_k (theta_k - start_k)^2.

    ``y`` are labels (n,), smoothed for every column whose nodes are all right at ``start``, or target probabilities (n, C).
    """
    with torch.inference_mode():  # hundreds of small operations: nothing of them is recorded for a gradient
        base, terms = base.double(), terms.double()
        start = terms.new_zeros(terms.shape[2]) if start is None else start.to(terms)
        if y.dim() == 1:
            y = platt_targets(y, base + terms @ start, contrast(terms))
        fit = LinearFit(base, terms, y, start)
        theta = fit.theta(fit.solve(fit.unit_ridge(ridge), precision=precision))
    return theta.clone()


def loo_logits(base: Tensor, terms: Tensor, target: Tensor, theta: Tensor, ridge: Tensor | float = 0.0) -> Tensor:
    """Logits (n, C) of every node from the fit without it; theta (K,) is the minimiser on all nodes."""
    with torch.inference_mode():
        fit = LinearFit(base, terms, target, theta)
        z = fit.at(fit.start).loo_logits(fit.unit_ridge(ridge) + TINY_RIDGE)
    return z.clone()


@dataclass(frozen=True, eq=False)
class RidgesFit:
    """A fit whose groups of coefficients have each a ridge of its own."""

    theta: Tensor  # (K,)
    ridge: Tensor  # (K,) on coefficients of columns of unit size
    loo_logits: Tensor  # (n, C)
    loo_nll: float


def best_ridges(
    base: Tensor,
    columns: ColumnSet,
    target: Tensor,
    start: Tensor,
    group: Tensor,
    ridges: Sequence[float],
    ungrouped: float = 0.0,
    sweeps: int = 2,
) -> RidgesFit:
    """A ridge for each group of coefficients, by coordinate search from strong to weak on leave-one-out NLL.

    ``group`` (K,) holds the number of a coefficient's group, -1 where its ridge is ``ungrouped``. A ridge is weakened while that
    gains, group after group, ``sweeps`` times over them all; neighbouring solutions are one Newton step apart.
    """
    with torch.inference_mode():
        fit = LinearFit(base, columns, target, start)
        strong_first = sorted(ridges, reverse=True)
        place = [0] * (int(group.max()) + 1)

        def ridge_at(place: Sequence[int]) -> Tensor:
            values = fit.start.new_tensor([*(strong_first[k] for k in place), ungrouped])
            return values[group] + TINY_RIDGE

        def step(place: Sequence[int], state: NewtonState) -> tuple[NewtonState, float]:
            there = fit.solve(ridge_at(place), state, steps=1)
            return there, there.loo_nll(ridge_at(place))

        state, least = step(place, fit.at(fit.start))
        for _ in range(sweeps):
            before = list(place)
            for g in range(len(place)):
                while place[g] + 1 < len(strong_first):
                    weaker = [k + (i == g) for i, k in enumerate(place)]
                    there, loss = step(weaker, state)
                    if not loss < least:
                        break
                    state, least, place = there, loss, weaker
            if place == before:
                break
        ridge = ridge_at(place)
        solved = fit.solve(ridge, state, precision=1e-14)
        unseen = solved.loo_logits(ridge)
        loss = -float((unseen.log_softmax(-1) * fit.target).sum()) / len(unseen)
        theta = fit.theta(solved)
    return RidgesFit(theta.clone(), ridge.clone(), unseen.clone(), loss)


class LinearFit:
    """One such problem. Inside, columns have unit size: a Gram column of SCAR and a logit differ by orders of magnitude."""

    def __init__(self, base: Tensor, columns: ColumnSet | Tensor, target: Tensor, start: Tensor) -> None:
        self.base, self.target, self._start = base.double(), target.double().contiguous(), start.double()
        given = DenseColumns(columns.double()) if isinstance(columns, Tensor) else columns
        floor = 1e-12 * float(self.base.abs().max().clamp(min=1.0))
        self.columns, self.scale, self.alive = given.unit(floor)
        self.start = self._start * self.scale

    def unit_ridge(self, ridge: Tensor | float) -> Tensor:
        """A ridge on theta as one on the coefficients of columns of unit size."""
        return torch.as_tensor(ridge, dtype=torch.double, device=self.base.device) / self.scale.square()

    def theta(self, state: NewtonState) -> Tensor:
        return torch.where(self.alive, state.theta / self.scale, self._start)

    def at(self, theta: Tensor) -> NewtonState:
        return NewtonState(self.base, self.columns, self.target, theta)

    def solve(
        self, ridge: Tensor, state: NewtonState | None = None, precision: float = 1e-18, steps: int = 100
    ) -> NewtonState:
        """Newton with backtracking, until a step would lower the objective by less than ``precision`` of itself.

        Each step squares what the one before it left: after a full one that gained less than sqrt(precision) none follows.
        """
        ridge = ridge + TINY_RIDGE
        state = self.at(self.start) if state is None else state

        def objective(state: NewtonState) -> float:
            return float(state.nll + 0.5 * torch.dot(ridge, (state.theta - self.start).square()))

        value = objective(state)
        for _ in range(steps):
            step, decrease = newton_step(state, self.start, ridge)
            if decrease < precision * (1 + abs(value)):
                break
            size, trial = 1.0, self.at(state.theta - step)
            trial_value = objective(trial)
            while trial_value > value - 1e-4 * size * decrease and size > 1e-12:
                size *= 0.5
                trial = self.at(state.theta - size * step)
                trial_value = objective(trial)
            if trial_value >= value:
                break  # no float64 improvement left
            state, value = trial, trial_value
            if size == 1.0 and decrease < precision**0.5:
                break
        return state


class NewtonState:
    """z = base + X theta at one theta, the mean NLL of its softmax, and that NLL's derivatives when asked for."""

    def __init__(self, base: Tensor, columns: ColumnSet, target: Tensor, theta: Tensor) -> None:
        """base (n, C), columns X, target q (n, C), theta (K,)"""
        self.theta, self.columns, self.target = theta, columns, target
        self.z = base + columns.apply(theta)
        self.log_probs = self.z.log_softmax(-1)
        self.nll = -torch.dot(self.log_probs.view(-1), target.view(-1)) / len(base)

    @cached_property
    def probs(self) -> Tensor:
        return self.log_probs.exp()

    @cached_property
    def gradient(self) -> Tensor:  # (K,)
        return self.columns.transpose(self.probs - self.target) / len(self.z)

    @cached_property
    def hessian(self) -> Tensor:  # (K, K) 1/n sum X^T (diag(p) - p p^T) X
        return self.columns.curvature(self.probs) / len(self.z)

    def loo_logits(self, ridge: Tensor) -> Tensor:
        """Logits of every node from the fit without it, if theta minimises the NLL with this ridge (K,)."""  # (n, C)
        inverse = torch.linalg.inv((self.hessian + ridge.diag()) * len(self.z))
        p, residual = self.probs, self.probs - self.target
        if p.shape[1] > MOST_SOLVED:
            return self.z + self._series(inverse, residual)
        moved, eye = torch.empty_like(self.z), torch.eye(p.shape[1], dtype=p.dtype, device=p.device)
        for nodes, leverage in self.columns.leverage(inverse):  # (r, C, C) S / n
            at = p[nodes]
            drift = leverage * at[:, None, :] - (leverage @ at[:, :, None]) * at[:, None, :]  # S A / n
            moved[nodes] = torch.linalg.solve(eye - drift, leverage @ residual[nodes, :, None]).squeeze(-1)
        return self.z + moved

    def _series(self, inverse: Tensor, residual: Tensor) -> Tensor:
        """(I - S A / n)^-1 S r / n as a series: the eigenvalues of S A / n are a node's shares in its own fit, below 1."""
        first = moved = self.columns.levered(inverse, residual)
        for _ in range(SERIES):
            bent = self.probs * (moved - (self.probs * moved).sum(1, keepdim=True))
            moved = first + self.columns.levered(inverse, bent)
        return moved

    def loo_nll(self, ridge: Tensor) -> float:
        log_probs = self.loo_logits(ridge).log_softmax(-1)
        return -float(torch.dot(log_probs.view(-1), self.target.view(-1))) / len(self.z)


def newton_step(state: NewtonState, start: Tensor, ridge: Tensor) -> tuple[Tensor, float]:
    """What Newton's method takes off theta (K,), and twice what the objective would fall by if it were quadratic."""
    gradient = state.gradient + ridge * (state.theta - start)
    step = torch.linalg.solve(state.hessian + ridge.diag(), gradient)
    return step, float(gradient @ step)


def mean_nll(logits: Tensor, y: Tensor) -> Tensor:
    """Mean negative log-likelihood of logits (n, C) under labels (n,)."""
    return -(logits.gather(-1, y[:, None]).squeeze(-1) - logits.logsumexp(-1)).mean()


def soft_nll(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of logits (n, C) under target probabilities (n, C)."""
    return (logits.logsumexp(-1) - (target * logits).sum(-1)).mean()


def platt_targets(y: Tensor, logits: Tensor, contrast: Tensor | None = None) -> Tensor:
    """One-hot labels (n, C), smoothed on the nodes of every column whose nodes the logits (n, C) get all right.

    A column k of ``contrast`` (n, C, K) has the nodes where it is not zero; without it there is one column, of all nodes.
    """
    classes = logits.shape[1]
    target = one_hot(y, classes).double()
    in_column = (logits.new_ones(len(y), 1, 1) if contrast is None else contrast).abs().amax(1) > 0  # (n, K)
    wrong = logits.argmax(-1) != y  # (n,)
    all_right = ~in_column[wrong].any(0)  # (K,)
    if not all_right.any():
        return target
    share = all_right.double() / (in_column.sum(0) + 2)
    smooth = (in_column * share).amax(1, keepdim=True)  # (n, 1)
    return target * (1 - smooth) + (1 - target) * smooth / (classes - 1)
