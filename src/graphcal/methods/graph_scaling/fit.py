"""Fit of graph scaling: the convex member, its ridges by evidence, leave-one-out, and the stack with temperature scaling.

NLL is convex in the parameters. With A_n = diag(p_n) - p_n p_n^T, X_n the columns of node n and every column of mean square 1,

    H = 1/n sum_n X_n^T A_n X_n,     V = (H + diag(lambda / n))^-1,     S_n = X_n V X_n^T / n

Ridges: MacKay's fixed point with a Gamma prior worth two observations at lambda = 100 (`evidence`). Node n without its label has

    z'_n + (I - S_n A_n)^-1 S_n (p_n - q_n)     and the covariance     (I - S_n A_n)^-1 S_n

(one Newton step of the fit without it, at the same ridges). The mean over pairs of classes of Var(z'_c - z'_k) is
v_n = (2 C tr S_n - 2 1^T S_n 1) / (C (C - 1)), which `variance_forms` writes as a quadratic form of the columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphcal.core import Outputs, fitted_on, fitting_nodes
from graphcal.engine.linear import fit_linear, loo_logits, platt_targets
from graphcal.engine.node_order import fitting_order
from graphcal.engine.threads import one_thread
from graphcal.graphs import MemorySums, graph_sums, isolated_nodes
from graphcal.methods.card import Card
from graphcal.methods.graph_scaling.calibration import (
    GraphScaled,
    Level,
    pooled,
    predicted,
    stacked,
    tempered,
    top_odds,
    with_neighbours,
)
from graphcal.methods.graph_scaling.columns import (
    COVARIATES,
    Design,
    component_counts,
    covariate_units,
    direction_rows,
    principal_components,
    principal_directions,
    singular_directions,
)
from graphcal.methods.temperature import fit_scale
from graphcal.metrics.row_comparison import compare_rows, prediction_covariates

PRIOR_LAMBDA, PRIOR_COUNT = 100.0, 2.0  # of the ridges, and the observations that this is worth
LAMBDA_RANGE = (3.0, 3000.0)
LAMBDA_OF_CONSTANT = 150.0  # of the scale's constant, towards temperature scaling
ROUNDS, SETTLED = 30, 0.05  # of the evidence; until every log ratio of ridges is below
MOST_NODES = 2000  # on which ridges and stack are chosen; the parameters are fitted on all
MOST_SOLVED, SERIES = (
    20,
    12,
)  # classes of a system that is solved for each node when it is left out; terms of the series otherwise
STACK_PRIOR, STACK_PRIOR_TS = 2.0, 150.0  # observations for each of the two; divided by n: more for temperature scaling
EXPONENT_LAMBDA, SMALLEST_EXPONENT = 30.0, 0.1
TOP_LAMBDA, SMALLEST_SLOPE = 20.0, 0.05
COMPARED, DRAWS = (500, 1000), 399  # fitted and other nodes that are compared, and re-assignments


# ------------------------------------------------------------------------------------------------- the convex member


class Problem:
    """Mean NLL of a design, in units in which every column has mean square 1; parameters are t (K,)."""

    def __init__(self, design: Design, target: Tensor, start: Tensor) -> None:
        self.design, self.target = design, target  # target (C, n)
        self.classes, self.n = target.shape
        self.size = self._sizes()
        self.start = torch.cat([start, start.new_zeros(len(self.size) - 1)]) * self.size.nan_to_num(posinf=0.0)

    def _sizes(self) -> Tensor:
        """Root mean square of every column over nodes and classes, without the part common to all classes; inf of empty ones."""
        f, x = self.design.f, self.design.x
        shared = [
            f[: s.stop - s.start].square() @ d.square().mean(0) for d, s in zip(self.design.fields, self.design.slices)
        ]
        indicator = (1 - 1 / self.classes) / self.classes  # mean square of one class's column
        by_class = x.square().sum(1) * indicator
        size = (torch.cat([*shared, by_class.repeat(self.classes)]) / self.n).sqrt()
        floor = 1e-12 * max(1.0, float(self.design.fields[0].abs().max()))
        return torch.where(size > floor, size, torch.inf)

    def split(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Shared parameters (F,) and B (C, q) in the units of the design."""
        raw = t / self.size
        return raw[: self.design.shared], raw[self.design.shared :].view(self.classes, -1)

    def logits(self, t: Tensor) -> Tensor:
        return self.design.logits(*self.split(t))

    def gradient(self, residual: Tensor) -> Tensor:
        """For p - q (C, n)."""
        f = self.design.f
        shared = [
            f[: s.stop - s.start] @ (field * residual).sum(0)
            for field, s in zip(self.design.fields, self.design.slices)
        ]
        return torch.cat([*shared, (residual @ self.design.x.T).flatten()]) / self.size / self.n

    def hessian(self, probs: Tensor) -> Tensor:
        """For probabilities (C, n); the block of B by products of pairs of classes with pairs of x."""
        classes, q, shared = self.classes, len(self.design.x), self.design.shared
        total = probs.new_zeros(len(self.size), len(self.size))
        pairs = probs.new_zeros(len(self._classes[0]), len(self._x[0]))
        for nodes, part in self.design.parts(classes * max(classes // 2, shared) + q * q // 2):
            p, columns = probs[:, nodes], []
            for field, s in zip(part.fields, part.slices):
                bent = p * (field - (p * field).sum(0))  # A field
                for other, o in zip(part.fields, part.slices):
                    f, g = part.f[: s.stop - s.start], part.f[: o.stop - o.start]
                    total[s, o] += (f * (bent * other).sum(0)) @ g.T
                columns.append(part.f[: s.stop - s.start, None] * bent)
            across = torch.cat(columns).flatten(0, 1) @ part.x.T  # (F C, q)
            total[:shared, shared:] += across.view(shared, classes * q)
            i, j = self._classes
            curvature = -p[i] * p[j]
            curvature[i == j] += p
            pairs += curvature @ self._x_pairs(part.x).T
        total[shared:, :shared] = total[:shared, shared:].T
        total[shared:, shared:] = self._unpacked(pairs)
        return total / self.size / self.size[:, None] / self.n

    def covariances(self, covariance: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """S_n (r, C, C) of parts of r nodes, for V (K, K)."""
        shared, q = self.design.shared, len(self.design.x)
        raw = covariance / self.size / self.size[:, None] / self.n
        across = raw[:shared, shared:].reshape(shared, self.classes, q)
        packed, pair_of = self._packed(raw[shared:, shared:]), self._pair_of(self.classes)
        for nodes, part in self.design.parts(4 * self.classes**2 + q * q // 2):
            total = (packed @ self._x_pairs(part.x))[pair_of]  # (C, C, r)
            for a, (field, s) in enumerate(zip(part.fields, part.slices)):
                f = part.f[: s.stop - s.start]
                beside = ((across[s].flatten(0, 1) @ part.x).view(len(f), *field.shape) * f[:, None]).sum(0)
                for b, o in enumerate(part.slices[: a + 1]):
                    amount = (f * (raw[s, o] @ part.f[: o.stop - o.start])).sum(0)
                    beside = beside + (0.5 if a == b else 1.0) * amount * part.fields[b]
                pair = field[:, None] * beside
                total = total + pair + pair.transpose(0, 1)
            yield nodes, total.permute(2, 0, 1)

    @cached_property
    def _classes(self) -> tuple[Tensor, Tensor]:
        i, j = torch.triu_indices(self.classes, self.classes, device=self.target.device)
        return i, j

    @cached_property
    def _x(self) -> tuple[Tensor, Tensor]:
        i, j = torch.triu_indices(len(self.design.x), len(self.design.x), device=self.target.device)
        return i, j

    def _x_pairs(self, x: Tensor) -> Tensor:
        return x[self._x[0]] * x[self._x[1]]

    def _pair_of(self, count: int) -> Tensor:
        """The number of each pair among the upper triangle, (count, count)."""
        i, j = torch.triu_indices(count, count, device=self.target.device)
        number = torch.empty(count, count, dtype=torch.long, device=self.target.device)
        number[i, j] = number[j, i] = torch.arange(len(i), device=self.target.device)
        return number

    def _unpacked(self, pairs: Tensor) -> Tensor:
        """(C q, C q) from pairs of classes by pairs of x."""
        q = len(self.design.x)
        full = pairs[self._pair_of(self.classes)][:, :, self._pair_of(q)]  # (C, C, q, q)
        return full.permute(0, 2, 1, 3).reshape(self.classes * q, self.classes * q)

    def _packed(self, block: Tensor) -> Tensor:
        """Coefficients of pairs of x for pairs of classes, from a symmetric (C q, C q)."""
        q = len(self.design.x)
        by_classes = block.view(self.classes, q, self.classes, q).permute(0, 2, 1, 3)[self._classes]  # (pairs, q, q)
        i, j = self._x
        both = by_classes[:, i, j] + by_classes[:, j, i]
        return torch.where(i == j, 0.5 * both, both)


@dataclass(frozen=True, eq=False)
class State:
    """Parameters with their probabilities and the penalised mean NLL."""

    t: Tensor
    log_probs: Tensor  # (C, n)
    objective: float


def state_at(problem: Problem, t: Tensor, ridge: Tensor) -> State:
    log_probs = problem.logits(t).log_softmax(0)
    nll = -float((log_probs * problem.target).sum()) / problem.n
    return State(t, log_probs, nll + 0.5 * float(ridge @ (t - problem.start).square()))


def newton_step(problem: Problem, state: State, hessian: Tensor, ridge: Tensor) -> tuple[State, float]:
    """One Newton step with backtracking, and the decrease that a quadratic objective would have had."""
    state = state_at(problem, state.t, ridge)
    gradient = problem.gradient(state.log_probs.exp() - problem.target) + ridge * (state.t - problem.start)
    factor = torch.linalg.cholesky(hessian + ridge.diag())
    step = torch.cholesky_solve(gradient[:, None], factor)[:, 0]
    decrease, length = float(gradient @ step), 1.0
    trial = state_at(problem, state.t - step, ridge)
    while not trial.objective <= state.objective - 1e-4 * length * decrease and length > 1e-10:
        length /= 2
        trial = state_at(problem, state.t - length * step, ridge)
    return (trial if trial.objective < state.objective else state), decrease


def solve(problem: Problem, state: State, ridge: Tensor, precision: float = 1e-12) -> State:
    """Newton's method until a step would gain less than ``precision``."""
    for _ in range(100):
        state, decrease = newton_step(problem, state, problem.hessian(state.log_probs.exp()), ridge)
        if decrease < precision * (1 + abs(state.objective)):
            break
    return state


def evidence(problem: Problem, group: Tensor, lambdas: Tensor) -> tuple[State, Tensor]:
    """Ridges by MacKay's fixed point: lambda (G,) of each group; group 0 keeps its ridge."""
    state = state_at(problem, problem.start, lambdas[group] / problem.n)
    hessian = problem.hessian(state.log_probs.exp())
    state, _ = newton_step(problem, state, hessian, lambdas[group] / problem.n)
    for _ in range(ROUNDS):
        hessian = problem.hessian(state.log_probs.exp())
        ridge = lambdas[group] / problem.n
        variance = torch.cholesky_inverse(torch.linalg.cholesky(hessian + ridge.diag())).diagonal()
        determined = torch.zeros_like(lambdas).index_add_(0, group, 1 - ridge * variance)  # gamma
        length = torch.zeros_like(lambdas).index_add_(0, group, (state.t - problem.start).square())
        updated = (determined + PRIOR_COUNT) / (length + PRIOR_COUNT / PRIOR_LAMBDA)
        updated = torch.cat([lambdas[:1], updated[1:].clamp(*LAMBDA_RANGE)])
        settled = bool(((updated / lambdas).log().abs() < SETTLED).all())
        lambdas = updated
        state, _ = newton_step(problem, state, hessian, lambdas[group] / problem.n)
        if settled:
            break
    return state, lambdas


def leave_one_out(problem: Problem, state: State, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """z' (C, n) of every node from the fit without it, and the mean variance (n,) of its differences between classes."""
    z, p, classes = problem.logits(state.t).T, state.log_probs.exp().T, problem.classes  # (n, C)
    residual, moved, variance = p - problem.target.T, torch.empty_like(p), torch.empty_like(p[:, 0])
    for nodes, own in problem.covariances(covariance):
        at, r = p[nodes], residual[nodes]
        if classes <= MOST_SOLVED:
            drift = own * at[:, None] - (own @ at[:, :, None]) * at[:, None]  # S A
            eye = torch.eye(classes, dtype=p.dtype, device=p.device)
            own = torch.linalg.solve(eye - drift, own)
            moved[nodes] = (own @ r[:, :, None])[:, :, 0]
            variance[nodes] = pair_variance(own.diagonal(dim1=1, dim2=2).sum(1), own.sum((1, 2)), classes)
            continue
        first = step = (own @ r[:, :, None])[:, :, 0]
        for _ in range(SERIES):  # the eigenvalues of S A are below 1: a node's share in its own fit
            bent = at * (step - (at * step).sum(1, keepdim=True))
            step = first + (own @ bent[:, :, None])[:, :, 0]
        moved[nodes] = step
        seen, total = (own @ at[:, :, None])[:, :, 0], own.sum(1)  # S p, S 1
        trace = own.diagonal(dim1=1, dim2=2).sum(1) + (own.square().sum(1) * at).sum(1) - seen.square().sum(1)
        both = total.sum(1) + (at * total.square()).sum(1) - (at * total).sum(1).square()  # S + S A S
        variance[nodes] = pair_variance(trace, both, classes)
    return (z + moved).T, variance


def pair_variance(trace: Tensor, total: Tensor, classes: int) -> Tensor:
    return (2 * classes * trace - 2 * total) / (classes * (classes - 1))


def variance_forms(problem: Problem, covariance: Tensor) -> dict[str, Tensor]:
    """The small matrices of `Design.variance` for V (K, K): v is quadratic in the shared columns and x."""
    shared, q, classes = problem.design.shared, len(problem.design.x), problem.classes
    raw = covariance / problem.size / problem.size[:, None] / problem.n
    by_class = raw[shared:, shared:].reshape(classes, q, classes, q)
    trace, total = by_class.diagonal(dim1=0, dim2=2).sum(-1), by_class.sum((0, 2))
    return {
        "by_shared": pair_variance(raw[:shared, :shared], torch.zeros_like(raw[0, 0]), classes),
        "by_both": pair_variance(2 * raw[:shared, shared:], torch.zeros_like(raw[0, 0]), classes).reshape(
            shared, classes, q
        ),
        "by_class": pair_variance(trace, total, classes),
    }


# ------------------------------------------------------------------------------------------------- one level: member and stack


@dataclass(frozen=True, eq=False)
class FittedLevel:
    level: Level
    lambdas: dict[str, float]
    log_probs: Tensor  # (C, n) leave-one-out, of the chosen nodes
    plain: Tensor  # (C, n) the same of temperature scaling
    nodes: Tensor | slice  # those nodes


def fit_level(
    design: Design, z: Tensor, y: Tensor, scale: Tensor, groups: list[str], like: dict[str, float]
) -> FittedLevel:
    """The convex member of a design, stacked with temperature scaling; ``like`` are ridges to begin with.

    ``groups`` names the ridge of every shared column and of every row of x; z (C, n) are centred logits, y (n,) labels.
    """
    target = platt_targets(y, z.T).T
    chosen = _evenly(len(y))
    problem = Problem(design.part(chosen), target[:, chosen], scale.reshape(1))
    shared, names = design.shared, list(dict.fromkeys(["constant", *groups]))
    numbers = torch.tensor([names.index(name) for name in groups], device=z.device)
    group = torch.cat([numbers[:shared], numbers[shared:].repeat(problem.classes)])
    lambdas = torch.tensor([LAMBDA_OF_CONSTANT, *(like.get(name, PRIOR_LAMBDA) for name in names[1:])]).to(z)
    state, lambdas = evidence(problem, group, lambdas)
    ridge = lambdas[group] / problem.n
    state = solve(problem, state, ridge)
    covariance = inverse(problem, state, ridge)
    plain = loo_logits(
        torch.zeros_like(z.T[chosen]), z.T[chosen][:, :, None], problem.target.T, scale.reshape(1)
    ).T.log_softmax(0)
    member = tempered(*leave_one_out(problem, state, covariance))
    stack = fit_stack(plain, member, problem.target)
    log_probs = stacked(plain, member, stack)
    top = fit_top(log_probs, predicted(z[:, chosen]), y[chosen])
    if len(y) > problem.n:
        raw, problem = state.t / problem.size, Problem(design, target, scale.reshape(1))
        ridge = lambdas[group] / problem.n
        state = solve(problem, state_at(problem, raw * problem.size.nan_to_num(posinf=0.0), ridge), ridge)
        covariance = inverse(problem, state, ridge)
    theta, weight = problem.split(state.t)
    level = Level(
        num_classes=problem.classes,
        theta=theta,
        weight=weight,
        stack=stack,
        top=top,
        **variance_forms(problem, covariance),
    )
    return FittedLevel(level, dict(zip(names, lambdas.tolist())), log_probs, plain, chosen)


def inverse(problem: Problem, state: State, ridge: Tensor) -> Tensor:
    """V = (H + diag(ridge))^-1"""
    hessian = problem.hessian(state.log_probs.exp()) + ridge.diag()
    return torch.cholesky_inverse(torch.linalg.cholesky(hessian))


def _evenly(count: int) -> Tensor:
    """At most `MOST_NODES` numbers below ``count``, evenly spaced."""
    return torch.linspace(0, count - 1, min(count, MOST_NODES), dtype=torch.double).round().long()


def fit_stack(plain: Tensor, member: Tensor, target: Tensor) -> Tensor:
    """w and s of p = (w p_ts + (1 - w) p_member)^s from leave-one-out log-probabilities (C, n) of both: EM, then Newton."""
    n = target.shape[1]
    label = torch.stack([(log_probs * target).sum(0) for log_probs in (plain, member)])
    likelihood = (label - label.amax(0)).exp()
    prior = label.new_tensor([STACK_PRIOR + STACK_PRIOR_TS / n, STACK_PRIOR])
    weights = prior / prior.sum()
    for _ in range(1000):
        share = likelihood * weights[:, None]
        updated = (share / share.sum(0)).sum(1) + prior
        updated = updated / updated.sum()
        settled, weights = float((updated - weights).abs().max()) < 1e-7, updated
        if settled:
            break
    mixed = stacked(plain, member, torch.stack([weights[0], torch.ones_like(weights[0])])).T
    exponent = fit_linear(torch.zeros_like(mixed), mixed[:, :, None], target.T, EXPONENT_LAMBDA / n, torch.ones(1))
    return torch.stack([weights[0], exponent[0].clamp(min=SMALLEST_EXPONENT)])


def fit_top(log_probs: Tensor, top: Tensor, y: Tensor) -> Tensor:
    """a and b of keep mode: logistic regression of "the prediction is right" on the log odds of its projected probability."""
    odds = top_odds(pooled(log_probs, top), top)[0]
    right = top.gather(0, y[None])[0].double()
    terms = torch.stack([torch.stack([odds, torch.ones_like(odds)], 1), odds.new_zeros(len(odds), 2)], 1)  # (n, 2, 2)
    target = torch.stack([right, 1 - right], 1)
    start = torch.tensor([1.0, 0.0])
    slope, shift = fit_linear(torch.zeros_like(target), terms, target, TOP_LAMBDA / len(y), start)
    return torch.stack([slope.clamp(min=SMALLEST_SLOPE), shift])


# ------------------------------------------------------------------------------------------------- the recipe


@dataclass(frozen=True)
class GraphScaling:
    """Recalibrate with logits, edges and hidden representation: one convex fit, mixed with temperature scaling.

    The calibrator to start with. It needs logits and takes edges and the hidden representation where they are known.

    Parameters
    ----------
    predictions : "free" or "keep", default="free"
        "keep" never changes a prediction, at a price in NLL.
    hidden : bool, default=True
        Use the representation that enters the final linear map, where the model shows it.
    inputs : bool, default=False
        Use the input features ``x`` as well.

    >>> import graphcal as gc
    >>> data = gc.load("citeseer")
    >>> out = gc.train(data, training=gc.Training(epochs=60), seeds=[0])[0].outputs
    >>> calibrate = gc.GraphScaling().fit(out, on=data.val_mask)
    >>> calibrate(out).shape, calibrate.level
    (torch.Size([3327, 6]), 'logits · edges · hidden')
    >>> keep = gc.GraphScaling(predictions="keep").fit(out, on=data.val_mask)
    >>> bool((keep(out).argmax(-1) == out.pred).all())
    True
    """

    predictions: str = "free"
    hidden: bool = True
    inputs: bool = False

    card: ClassVar[Card] = Card(
        title="Graph scaling (ours)",
        formula="p = (w softmax(s z) + (1 - w) softmax(z' / sqrt(1 + pi/8 v)))^e; z' = (a.f) z + (u.f) v1 + u2 v2 + B [1; z; h; x]",
        paper="this library",
        parameters="about 17 + (1 + C + 32) C under ridges by evidence, w and e; B has at most 1,000 entries",
        cost="fit: some fifteen Newton steps on the fitted nodes; apply: O(E C + N (q^2 + 17 C q)), q the width of B",
        keeps_predictions=False,
        minimises_nll=True,
        departures="not a published method. Levels: logits and edges; and hidden (default); and inputs (inputs=True)",
    )

    def __post_init__(self) -> None:
        if self.predictions not in ("free", "keep"):
            raise ValueError(f"predictions={self.predictions!r} is not one of free, keep")

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> GraphScaled:
        """Fit on the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        nodes = fitting_order(out, on)
        with one_thread(), torch.inference_mode():
            return self._fit(out, on, nodes)

    def _fit(self, out: Outputs, on: Tensor, nodes: Tensor) -> GraphScaled:
        z, y = _centred(out.logits[nodes]), out.graph.y[nodes]  # (C, n)
        graph = graph_sums(out.graph)
        scale = fit_scale(z.T, y)[0]
        reading = {
            "edges": graph is not None, "scale": scale, "matrix": principal_directions(z),
            **self._components(out, nodes, graph),
        }  # fmt: skip
        reader = GraphScaled(num_classes=out.num_classes, **reading)
        rows = reader.context_of(out)
        context = rows[nodes].T.double()
        reading |= covariate_units(*reader.raw_covariates(z, context))
        reader = GraphScaled(num_classes=out.num_classes, **reading)
        shared = ["covariates"] * len(reader.centre)
        groups = ["constant", *shared]
        if graph is not None:
            groups += ["neighbours", *[f"neighbours {name}" for name in shared], "neighbours"]
        groups += ["bias", *["matrix"] * reader.matrix.shape[1]][: len(reader.design(z, context).x)]
        fitted = base = fit_level(reader.design(z, context), z, y, scale, groups, {})
        levels = {"base": base.level, "extra": None}
        if reader.needs.hidden or reader.needs.inputs:
            extra = context[reader._graph_width :]
            present = extra.isfinite().all(0)
            counts = {
                name: getattr(reader, f"{name}_rotation").shape[1]
                for name in ("hidden", "inputs")
                if getattr(reader.needs, name)
            }
            groups += [name for name, count in counts.items() for _ in range(count)]
            design = reader.design(z, context, extra).part(present)
            fitted = fit_level(design, z[:, present], y[present], scale, groups, base.lambdas)
            levels["extra"] = fitted.level
        note = _note(reader, fitted, z, y, self.predictions) + _selection_note(out, on, reader, rows)
        return GraphScaled(**reading, **levels, predictions=self.predictions, note=note, **fitted_on(out, on))

    def _components(self, out: Outputs, nodes: Tensor, graph: MemorySums | None) -> dict[str, Tensor | None]:
        """Principal components of the hidden representation and of the inputs, where they are used."""
        hidden, inputs = self.hidden and out.hidden is not None, self.inputs
        if inputs and out.graph.get("x") is None:
            raise ValueError("inputs=True needs node features, but the graph has no x.")
        parts: dict[str, Tensor | None] = {
            f"{name}_{key}": None for name in ("hidden", "inputs") for key in ("centre", "rotation", "low", "high")
        }
        parts["directions"] = None
        counts = component_counts(out.num_classes, hidden, inputs)
        if hidden and counts[0]:
            assert out.hidden is not None
            parts |= {
                f"hidden_{key}": value for key, value in principal_components(out.hidden, nodes, counts[0]).items()
            }
        if inputs and counts[1]:
            x = out.graph.x
            parts["directions"] = singular_directions(x)
            along = direction_rows(x, parts["directions"])
            values = with_neighbours(along, (graph or isolated_nodes(out.num_nodes, x)).neighbour_sum(along))
            parts |= {f"inputs_{key}": value for key, value in principal_components(values, nodes, counts[1]).items()}
        return parts


@dataclass(frozen=True)
class KeptGraphScaling(GraphScaling):
    """Graph scaling that never changes a prediction.

    The same as ``GraphScaling(predictions="keep")``, under a name of its own for tables and commands.
    """

    predictions: str = "keep"

    card: ClassVar[Card] = replace(
        GraphScaling.card, title="Graph scaling, predictions kept (ours)", keeps_predictions=True
    )


def _centred(logits: Tensor) -> Tensor:
    """Logits (C, n) without what is common to all classes, in double precision, from (n, C)."""
    z = logits.T.double()
    return z - z.mean(0)


def _note(reader: GraphScaled, fitted: FittedLevel, z: Tensor, y: Tensor, predictions: str) -> str:
    """Level, leave-one-out NLL against temperature scaling, and the predictions that change."""
    y, z = y[fitted.nodes], z[:, fitted.nodes]
    before, after = (-float(p.gather(0, y[None]).mean()) for p in (fitted.plain, fitted.log_probs))
    pred, moved = z.argmax(0), fitted.log_probs.argmax(0)
    accuracy = [100 * float((p == y).double().mean()) for p in (pred, moved)]
    change = f"{int((pred != moved).sum())} of {len(y)} fitted nodes"
    gain = f"leave-one-out accuracy {accuracy[0]:.1f} -> {accuracy[1]:.1f} %"
    verb = (
        f"predictions of {change} change: {gain}"
        if predictions == "free"
        else f"{change} are held; freeing predictions: {gain}"
    )
    return f"level: {reader.level}; leave-one-out NLL {after:.4f} (temperature scaling {before:.4f}); {verb}"


def _selection_note(out: Outputs, on: Tensor, reader: GraphScaled, context: Tensor) -> str:
    """How the fitted nodes differ from other nodes outside training, by covariates and tempered probabilities."""
    train = out.graph.get("train_mask")
    others = ~on if train is None else ~on & ~train
    draw = torch.Generator().manual_seed(0)
    groups = [nodes.nonzero().flatten().cpu() for nodes in (on, others)]
    groups = [ids[torch.randperm(len(ids), generator=draw)[:most]] for ids, most in zip(groups, COMPARED)]
    if len(groups[1]) == 0:
        return ""
    columns = []
    for ids in (nodes.to(out.logits.device) for nodes in groups):
        raw, _ = reader.raw_covariates(_centred(out.logits[ids]), context[ids].T.double())
        probs = (reader.scale * out.logits[ids].double()).log_softmax(-1).cpu().numpy()
        columns.append({**prediction_covariates(probs), **dict(zip(COVARIATES[-len(raw) :], raw.cpu().numpy()))})
    comparison = compare_rows(*columns, draws=DRAWS)
    if not comparison.differ:
        return ""
    return (
        f"; {comparison.text('the fitted nodes', 'the others')} (AUC {comparison.auc:.2f}): what was measured on the fitted nodes "
        "may not carry over"
    )
