"""Regularised softmax regression by Newton's method: the convex problem behind vector, matrix and Dirichlet scaling.

    minimise over W (K, C):   mean_n CE(x_n W, y_n) + 1/2 sum_kc ridge_kc (W_kc - centre_kc)^2

*One scale and one shift per class* (`fit_diagonal`). With p = softmax and G (n, 2 C) of rows (z p, p), the Hessian is

    [ diag(sum z^2 p)  diag(sum z p) ; diag(sum z p)  diag(sum p) ] / n  -  G^T G / n  +  ridge

one product of matrices and a system of 2 C equations.

*A matrix and a shift* (`fit_softmax`). The Hessian has (C^2 + C)^2 entries, 6 million for 50 classes, and is never formed.
Conjugate gradients need its products only:

    H V = x^T [P (xV) - P sum_c P (xV)] / n + ridge V         (products entry by entry)

They are preconditioned by the sum of two inverses: that of the Hessian above, on the diagonal and the shift, which have little
or no ridge, and that of x^T x / n (x) diag(mean_n p (1 - p)) + mean ridge, by eigenvectors, on all entries.

Arrays have the classes first, and nodes come in blocks that stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from graphcal.methods.solvers.node_order import kfold

BLOCK = 2**16  # numbers in one block
TIE = 1e-6  # of held-out NLLs
ROUNDING = 1e-14  # keeps a Hessian positive definite when logits are huge


def fit_softmax(
    x: Tensor, y: Tensor, centre: Tensor, ridge: Tensor, start: Tensor | None = None, precision: float = 1e-12
) -> Tensor:
    """Return W (C + 1, C) for x (n, C + 1) whose last column is 1.

    It ends when a step lowers the objective by less than ``precision``. The objective is never larger than at ``centre``.
    """
    return _newton(_Full(x, y, centre, ridge), start, precision)


def fit_diagonal(z: Tensor, y: Tensor, ridge: float, bias: bool = True, precision: float = 1e-12) -> Tensor:
    """Return scale and shift (2, C) of logits z (n, C), with a ridge towards 1 and 0; without ``bias`` the shift is 0."""
    return _newton(_Diagonal(z, y, ridge, bias), None, precision)


@dataclass(frozen=True, eq=False)
class _State:
    """Weights, their objective, and the probabilities (C, b) of every block."""

    weight: Tensor
    value: float
    probs: list[Tensor]


class _Problem:
    """Data in blocks and the objective. A subclass defines the logits and Newton's step."""

    def __init__(self, x: Tensor, y: Tensor, centre: Tensor, ridge: Tensor) -> None:
        self.n, self.centre, self.ridge = len(x), centre.double(), ridge.double()
        rows = max(256, BLOCK // centre.shape[1])
        self.blocks = [part.T.double().contiguous() for part in x.split(rows)]  # (K, b)
        self.labels = [part[None] for part in y.split(rows)]  # (1, b)

    def logits(self, weight: Tensor, x: Tensor) -> Tensor:
        """Logits (C, b) of a block x (K, b)."""
        raise NotImplementedError

    def step(self, state: _State, precision: float) -> tuple[Tensor, float]:
        """Return what Newton's method takes off the weights, and the product of that with the gradient."""
        raise NotImplementedError

    def at(self, weight: Tensor) -> _State:
        nll, probs = 0.0, []
        for x, labels in zip(self.blocks, self.labels):
            log_probs = self.logits(weight, x).log_softmax(0)
            nll -= float(log_probs.gather(0, labels).sum())
            probs.append(log_probs.exp_())
        penalty = 0.5 * float((self.ridge * (weight - self.centre).square()).sum())
        return _State(weight, nll / self.n + penalty, probs)


def _newton(problem: _Problem, start: Tensor | None, precision: float) -> Tensor:
    """Newton's method with backtracking, from the better of the centre and ``start``.

    Each step squares what the one before it left: after a full one that gained less than sqrt(precision) none follows.
    """
    with torch.inference_mode():
        state = problem.at(problem.centre)
        if start is not None:
            state = min(state, problem.at(start.double()), key=lambda one: one.value)
        for _ in range(100):
            step, decrease = problem.step(state, precision)
            if decrease < precision * (1 + abs(state.value)):
                break
            size, trial = 1.0, problem.at(state.weight - step)
            while trial.value > state.value - 1e-4 * size * decrease and size > 1e-12:
                size *= 0.5
                trial = problem.at(state.weight - size * step)
            if trial.value >= state.value:
                break
            state = trial
            if size == 1.0 and decrease < precision**0.5:
                break
    return state.weight.clone()


def _diagonal_hessian(blocks: Sequence[Tensor], probs: Sequence[Tensor]) -> Tensor:
    """Hessian (2 C, 2 C) of the sum of NLLs in a scale and a shift per class, of logits in the first C rows of each block."""
    C = len(probs[0])
    hessian, moments = probs[0].new_zeros(2 * C, 2 * C), probs[0].new_zeros(3, C)
    for x, p in zip(blocks, probs):
        both = torch.cat([x[:C] * p, p])  # (2 C, b)
        hessian.addmm_(both, both.T, alpha=-1)
        moments += torch.stack([(both[:C] * x[:C]).sum(1), both[:C].sum(1), p.sum(1)])
    for row, column, moment in ((0, 0, 0), (0, C, 1), (C, 0, 1), (C, C, 2)):
        hessian[row : row + C, column : column + C].diagonal().add_(moments[moment])
    hessian.diagonal().add_(ROUNDING * moments.abs().amax())
    return hessian


class _Diagonal(_Problem):
    """Weights (2, C): a scale and a shift per class."""

    def __init__(self, z: Tensor, y: Tensor, ridge: float, bias: bool) -> None:
        centre = torch.tensor([[1.0], [0.0]], dtype=torch.double, device=z.device).repeat(1, z.shape[1])
        super().__init__(z, y, centre, torch.full_like(centre, ridge))
        self.free = (1 + bias) * z.shape[1]  # of the weights in a row

    def logits(self, weight: Tensor, x: Tensor) -> Tensor:
        return torch.addcmul(weight[1][:, None], weight[0][:, None], x)

    def step(self, state: _State, precision: float) -> tuple[Tensor, float]:
        gradient = self.ridge * (state.weight - self.centre)
        for z, p, labels in zip(self.blocks, state.probs, self.labels):
            residual = p.scatter_add(0, labels, torch.full_like(p[:1], -1.0))
            gradient += torch.stack([(residual * z).sum(1), residual.sum(1)]) / self.n
        hessian = _diagonal_hessian(self.blocks, state.probs) / self.n + self.ridge.flatten().diag()
        step = torch.zeros_like(gradient)
        right = gradient.view(-1)[: self.free]
        step.view(-1)[: self.free] = torch.linalg.solve(hessian[: self.free, : self.free], right)
        return step, float((gradient * step).sum())


class _Full(_Problem):
    """Weights (C + 1, C): a matrix and, in the last row, a shift."""

    def __init__(self, x: Tensor, y: Tensor, centre: Tensor, ridge: Tensor) -> None:
        super().__init__(x, y, centre, ridge)
        self.observed = torch.zeros_like(self.centre)  # sum_n x_n onehot(y_n)^T
        gram = self.centre.new_zeros(len(centre), len(centre))
        for block, labels in zip(self.blocks, self.labels):
            self.observed.index_add_(1, labels[0], block)
            gram.addmm_(block, block.T)
        self.sizes, self.axes = torch.linalg.eigh(gram / self.n)

    def logits(self, weight: Tensor, x: Tensor) -> Tensor:
        return weight.T @ x

    def product(self, state: _State, v: Tensor) -> Tensor:
        """The Hessian's product with v (C + 1, C)."""
        total = torch.zeros_like(v)
        for x, p in zip(self.blocks, state.probs):
            moved = (v.T @ x).mul_(p)
            moved.addcmul_(p, moved.sum(0), value=-1)
            total.addmm_(x, moved.T)
        return total.div_(self.n).addcmul_(self.ridge, v)

    def step(self, state: _State, precision: float) -> tuple[Tensor, float]:
        gradient = -self.observed
        for x, p in zip(self.blocks, state.probs):
            gradient.addmm_(x, p.T)
        gradient = gradient / self.n + self.ridge * (state.weight - self.centre)
        step = self._conjugate_gradient(state, gradient, self._preconditioner(state), precision)
        return step, float((gradient * step).sum())

    def _preconditioner(self, state: _State) -> Callable[[Tensor], Tensor]:
        spread = torch.stack([(p - p * p).sum(1) for p in state.probs]).sum(0) / self.n  # (C,)
        curvature = torch.outer(self.sizes.clamp(min=0), spread) + self.ridge.mean()  # (C + 1, C), on eigenvectors
        ridge = torch.cat([self.ridge.diagonal(), self.ridge[-1]])
        factor = torch.linalg.cholesky(_diagonal_hessian(self.blocks, state.probs) / self.n + ridge.diag())

        def precondition(v: Tensor) -> Tensor:
            solved: Tensor = self.axes @ ((self.axes.T @ v) / curvature)
            scale, shift = torch.cholesky_solve(torch.cat([v.diagonal(), v[-1]])[:, None], factor).view(2, -1)
            solved.diagonal().add_(scale)
            solved[-1] += shift
            return solved

        return precondition

    def _conjugate_gradient(
        self, state: _State, gradient: Tensor, precondition: Callable[[Tensor], Tensor], precision: float
    ) -> Tensor:
        """H^-1 gradient, as precisely as the gradient is small (superlinear convergence of the outer steps)."""
        residual, step = gradient.clone(), torch.zeros_like(gradient)
        scaled = precondition(residual)
        direction = scaled.clone()
        rho = first = float((residual * scaled).sum())
        tolerance = max(first * min(1e-2, first), 0.1 * precision)
        for _ in range(250):
            if rho <= tolerance:
                break
            product = self.product(state, direction)
            bend = float((direction * product).sum())
            if bend <= 0.0:
                break
            alpha = rho / bend
            step += alpha * direction
            residual -= alpha * product
            scaled = precondition(residual)
            rho, previous = float((residual * scaled).sum()), rho
            direction = scaled + (rho / previous) * direction
        return step if bool(step.any()) else precondition(gradient)


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
    """Return [A; b] (C + 1, C) with the off-diagonal penalty of smallest cross-validated NLL, and that penalty.

    Penalties go from strong to weak, and each fold starts from its fit before. The path ends where the held-out NLL is more than
    two standard errors above its minimum: weaker penalties overfit more and take longest. The last fit starts from the mean of
    the folds. The strongest of equal penalties wins; held-out NLLs that differ by less than `TIE` are equal.
    """
    n, classes = len(x), x.shape[1] - 1
    centre = identity_start(classes).to(x.device)
    strong_first = sorted(penalties, reverse=True)
    best, start = strong_first[0], centre
    if len(strong_first) > 1 and n >= 2 * folds:
        parts = kfold(n, folds, generator)
        weights = [centre] * folds
        loss, lowest = torch.empty(n, dtype=torch.double, device=x.device), None  # of every node, held out
        for penalty in strong_first:
            ridge = odir_ridge(classes, penalty, n).to(x.device)
            for fold, part in enumerate(parts):
                kept = torch.ones(n, dtype=torch.bool, device=x.device)
                kept[part] = False
                weights[fold] = fit_softmax(x[kept], y[kept], centre, ridge, weights[fold], precision=1e-9)
                loss[part] = cross_entropy(x[part].double() @ weights[fold], y[part], reduction="none")
            if lowest is None or loss.mean() < lowest.mean() - TIE:
                best, lowest, start = penalty, loss.clone(), torch.stack(weights).mean(0)
            elif (loss - lowest).mean() > 2 * (loss - lowest).std() / n**0.5:
                break
    return fit_softmax(x, y, centre, odir_ridge(classes, best, n).to(x.device), start), best
