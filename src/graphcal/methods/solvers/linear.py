"""Convex fits: softmax NLL of logits that are linear in a few parameters, with leave-one-out validation.

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

Matrices of parameters, where H would be too large to write down, are for `graphcal.methods.solvers.softmax`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot

# on coefficients of columns of unit size: two equal columns must not make the Hessian singular
TINY_RIDGE = 1e-10
MOST_SOLVED = 20  # classes of a system that is solved for every node when it is left out
SERIES = 12  # terms otherwise
CHUNK = 2**22  # numbers in one intermediate


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


def contrast(x: Tensor) -> Tensor:
    """x (n, C, ...) without what is common to all classes, which softmax does not see."""
    return x - x.mean(1, keepdim=True)


@dataclass(frozen=True, eq=False)
class DenseColumns:
    """Columns X_n (C, K) of logits that are linear in their parameters."""

    terms: Tensor  # (n, C, K)

    @cached_property
    def flat(self) -> Tensor:  # (n C, K)
        return self.terms.reshape(-1, self.terms.shape[2])

    def unit(self, floor: float) -> tuple[DenseColumns, Tensor, Tensor]:
        """Columns of unit size, the sizes (K,), and which are above ``floor`` (K,); softmax sees contrasts only."""
        centred = contrast(self.terms)
        size = centred.square().mean((0, 1)).sqrt()
        alive = size > floor
        size = torch.where(alive, size, torch.ones_like(size))
        return DenseColumns(centred / size), size, alive

    def apply(self, theta: Tensor) -> Tensor:
        """X theta, (n, C)."""
        return (self.flat @ theta).view(self.terms.shape[:2])

    def transpose(self, residual: Tensor) -> Tensor:
        """sum_n X_n^T r_n, (K,), for r (n, C)."""
        return residual.reshape(-1) @ self.flat

    def curvature(self, probs: Tensor) -> Tensor:
        """sum_n X_n^T (diag(p_n) - p_n p_n^T) X_n, (K, K)."""
        weighted = self.flat * probs.reshape(-1, 1)
        mean = weighted.view(self.terms.shape).sum(1)  # (n, K)
        curvature: Tensor = weighted.T @ self.flat - mean.T @ mean
        return curvature

    def leverage_blocks(self, inverse: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """X_n M X_n^T, (r, C, C) for slices of r nodes, for M (K, K)."""
        size = max(1, CHUNK // max(self.terms[0].numel(), 1))
        for first in range(0, len(self.terms), size):
            part = slice(first, first + size)
            x = self.terms[part]
            yield part, (x @ inverse) @ x.mT

    def apply_leverage(self, inverse: Tensor, x: Tensor) -> Tensor:
        """X_n M X_n^T x_n, (n, C), for M (K, K) and x (n, C), without writing the matrices down."""
        seen = torch.einsum("nck,nc->nk", self.terms, x) @ inverse
        return torch.einsum("nck,nk->nc", self.terms, seen)


class LinearFit:
    """A fit of logits that are linear in theta.

    Inside, columns have unit size: a Gram column of SCAR and a logit differ by orders of magnitude.
    """

    def __init__(self, base: Tensor, terms: Tensor, target: Tensor, start: Tensor) -> None:
        self.base, self.target, self._start = base.double(), target.double().contiguous(), start.double()
        floor = 1e-12 * float(self.base.abs().max().clamp(min=1.0))
        self.columns, self.scale, self.alive = DenseColumns(terms.double()).unit(floor)
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

    def __init__(self, base: Tensor, columns: DenseColumns, target: Tensor, theta: Tensor) -> None:
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
        for nodes, leverage in self.columns.leverage_blocks(inverse):  # (r, C, C) S / n
            at = p[nodes]
            drift = leverage * at[:, None, :] - (leverage @ at[:, :, None]) * at[:, None, :]  # S A / n
            moved[nodes] = torch.linalg.solve(eye - drift, leverage @ residual[nodes, :, None]).squeeze(-1)
        return self.z + moved

    def _series(self, inverse: Tensor, residual: Tensor) -> Tensor:
        """(I - S A / n)^-1 S r / n as a series: the eigenvalues of S A / n are a node's shares in its own fit, below 1."""
        first = moved = self.columns.apply_leverage(inverse, residual)
        for _ in range(SERIES):
            bent = self.probs * (moved - (self.probs * moved).sum(1, keepdim=True))
            moved = first + self.columns.apply_leverage(inverse, bent)
        return moved

    def loo_nll(self, ridge: Tensor) -> float:
        log_probs = self.loo_logits(ridge).log_softmax(-1)
        return -float(torch.dot(log_probs.view(-1), self.target.view(-1))) / len(self.z)


def newton_step(state: NewtonState, start: Tensor, ridge: Tensor) -> tuple[Tensor, float]:
    """Newton step (K,), to be subtracted from theta, and the Newton decrement: twice the decrease of a quadratic objective."""
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
