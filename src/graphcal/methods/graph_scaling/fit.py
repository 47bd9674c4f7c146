"""Fit of graph scaling: one convex member, ridges by evidence, leave-one-out, and its mixture with temperature scaling.

With every column of mean square 1, X_n the columns of node n, A_n = diag(p_n) - p_n p_n^T and lambda the ridges of the groups,

    H = 1/n sum_n X_n^T A_n X_n,     V = (H + diag(lambda / n))^-1,     S_n = X_n V X_n^T / n

Ridges are MacKay's fixed point with a Gamma prior worth two observations at lambda = 100 (`evidence`); the constant of the scale
keeps 150, towards temperature scaling. Without its label node n has z'_n + (I - S_n A_n)^-1 S_n (p_n - q_n), with the covariance
(I - S_n A_n)^-1 S_n: one Newton step at the same ridges. The mean variance of a difference between two classes is
v_n = (2 C tr S_n - 2 1^T S_n 1) / (C (C - 1)), a quadratic form of the columns (`variance_forms`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphcal.core import Outputs, fitted_on, fitting_nodes
from graphcal.graphs import graph_sums, isolated_nodes
from graphcal.methods.card import Card
from graphcal.methods.graph_scaling import columns
from graphcal.methods.graph_scaling.calibration import (
    GraphScaled,
    Level,
    Refits,
    pooled,
    predicted,
    stacked,
    stacked_levels,
    tempered,
    top_odds,
)
from graphcal.methods.graph_scaling.columns import CHUNK, Components, Design, lengths
from graphcal.methods.graph_scaling.field import residual_field
from graphcal.methods.platt import weight_note
from graphcal.methods.solvers.linear import fit_linear, loo_logits, platt_targets
from graphcal.methods.solvers.node_order import canonical_order
from graphcal.methods.temperature import fit_scale
from graphcal.metrics.row_comparison import compare_rows, prediction_covariates
from graphcal.residuals import node_facts, node_groups
from graphcal.threads import one_thread

PRIOR_LAMBDA, PRIOR_COUNT, CONSTANT_LAMBDA = 100.0, 2.0, 150.0
SMALLEST_LAMBDA, LARGEST_LAMBDA = 3.0, 3000.0
ROUNDS, SETTLED = 30, 0.05  # of the evidence; until every log ratio of ridges is below
PRECISION = 1e-8  # of the objective: each Newton step squares what is left
MOST_NODES = 2000  # on which ridges and mixture are chosen; the parameters are fitted on all
MOST_SOLVED, SERIES = 20, 12  # classes of a system that is solved for each node left out; terms of a series otherwise
STACK_PRIOR, STACK_PRIOR_TS = 2.0, 150.0  # observations of each of the two; divided by n: more for temperature scaling
EXPONENT_LAMBDA, SMALLEST_EXPONENT = 30.0, 0.1
TOP_LAMBDA, SMALLEST_SLOPE = 20.0, 0.05
FOLDS = 10  # of the refits for sets
COMPARED, DRAWS = (500, 1000), 399  # fitted and other nodes that are compared, and re-assignments


Part = tuple[slice, Design, Tensor, Tensor]


class Problem:
    """Penalised mean NLL of a design in parameters t (K,): shared ones, then B row by row, of columns of mean square 1."""

    def __init__(self, design: Design, target: Tensor, scale: Tensor) -> None:
        self.design, self.target, (self.classes, self.n) = design, target, target.shape
        self.q, self.num_shared = len(design.x), design.num_shared
        squares = [f.square() @ field.square().mean(0) for field, f, _ in design.blocks()]
        indicator = (1 - 1 / self.classes) / self.classes  # mean square of a column that one class has, centred
        size = (torch.cat([*squares, (design.x.square().sum(1) * indicator).repeat(self.classes)]) / self.n).sqrt()
        self.size = torch.where(
            size > 1e-12 * design.fields[0].abs().max().clamp(min=1), size, torch.inf
        )  # inf: left out
        self.start = torch.zeros_like(size)
        self.start[0] = scale * size[0]

    def split(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """theta (F,) and B (C, q)"""
        raw = t / self.size
        return raw[: self.num_shared], raw[self.num_shared :].view(self.classes, self.q)

    def at(self, t: Tensor, ridge: Tensor) -> tuple[Tensor, float]:
        """Log-probabilities (C, n) and objective."""
        log_probs = self.design.logits(*self.split(t)).log_softmax(0)
        penalty = 0.5 * ridge @ (t - self.start).square()
        return log_probs, float(penalty - (log_probs * self.target).sum() / self.n)

    def gradient(self, probs: Tensor) -> Tensor:
        residual = probs - self.target
        shared = [f @ (field * residual).sum(0) for field, f, _ in self.design.blocks()]
        return torch.cat([*shared, (residual @ self.design.x.T).flatten()]) / self.size / self.n

    def hessian(self, probs: Tensor, dtype: torch.dtype = torch.double) -> Tensor:
        """H (K, K); the block of B by products of pairs of classes with pairs of x, a quarter of the work."""
        (c, d), s = self._class_pairs, self.num_shared
        total = torch.zeros(len(self.size), len(self.size)).to(probs)
        pairs = torch.zeros(len(c), self.q * (self.q + 1) // 2, dtype=dtype).to(probs.device)
        for nodes, design, shared, x_pairs in self._parts or self._chunks(CHUNK >> 3):
            p = probs[:, nodes]
            bent = p * (shared - (p * shared).sum(1, keepdim=True))  # (F, C, r) A times each shared column
            total[:s, :s] += bent.flatten(1) @ shared.flatten(1).T
            total[:s, s:] += (bent.flatten(0, 1) @ design.x.T).view(s, -1)
            p = p.to(dtype)
            curvature = -p[c] * p[d]
            curvature[c == d] += p
            pairs += curvature @ x_pairs.T.to(dtype)
        total[s:, :s] = total[:s, s:].T
        by_class = pairs[_pair_numbers(self.classes)][:, :, _pair_numbers(self.q)]  # (C, C, q, q)
        total[s:, s:] = by_class.transpose(1, 2).reshape(total[s:, s:].shape)
        return (total / self.size / self.size[:, None] / self.n).to(dtype)

    def covariances(self, inverse: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """S_n (r, C, C) of parts of r nodes, for V (K, K)."""
        s, raw = self.num_shared, self.raw_covariance(inverse)
        blocks = raw[s:, s:].view(self.classes, self.q, self.classes, self.q).transpose(1, 2)[self._class_pairs]
        i, j = torch.triu_indices(self.q, self.q)
        by_pairs = ((blocks[:, i, j] + blocks[:, j, i]) * torch.where(i == j, 0.5, 1.0))[
            _pair_numbers(self.classes).flatten()
        ]
        dtype = torch.double if self.classes <= MOST_SOLVED else torch.float
        for nodes, design, shared, x_pairs in self._chunks(CHUNK >> 4):
            covariance = (x_pairs.T.to(dtype) @ by_pairs.T.to(dtype)).view(-1, self.classes, self.classes)
            half = 0.5 * (raw[:s, :s] @ shared.flatten(1)).view_as(shared)
            half += (raw[:s, s:].reshape(s * self.classes, self.q) @ design.x).view_as(shared)
            cross = shared.permute(2, 1, 0).to(dtype) @ half.permute(2, 0, 1).to(dtype)  # (r, C, C)
            yield nodes, covariance + cross + cross.mT

    def raw_covariance(self, inverse: Tensor) -> Tensor:
        """Covariance (K, K) of the parameters in the units of the design."""
        return inverse / self.size / self.size[:, None] / self.n

    @cached_property
    def _class_pairs(self) -> tuple[Tensor, Tensor]:
        c, d = torch.triu_indices(self.classes, self.classes)
        return c, d

    @cached_property
    def _parts(self) -> list[Part]:
        return list(self._chunks(CHUNK >> 3)) if self.n <= MOST_NODES else []

    def _chunks(self, numbers: int) -> Iterator[Part]:
        """Parts of the nodes, with shared columns (F, C, r) and products of pairs of x, of so many numbers at most."""
        i, j = torch.triu_indices(self.q, self.q)
        size = max(1, numbers // max(self.classes**2, self.num_shared * self.classes, self.q**2 // 2))
        for first in range(0, self.n, size):
            nodes = slice(first, first + size)
            design = self.design.part(nodes)
            shared = torch.cat([f[:, None] * field for field, f, _ in design.blocks()])
            yield nodes, design, shared, design.x[i] * design.x[j]


def _pair_numbers(count: int) -> Tensor:
    """The number of each pair in the upper triangle, (count, count)."""
    i, j = torch.triu_indices(count, count)
    numbers = torch.empty(count, count, dtype=torch.long)
    numbers[i, j] = numbers[j, i] = torch.arange(len(i))
    return numbers


def newton_step(problem: Problem, t: Tensor, hessian: Tensor, ridge: Tensor) -> tuple[Tensor, float]:
    """One Newton step with backtracking, and the decrease of the objective."""
    log_probs, before = problem.at(t, ridge)
    gradient = problem.gradient(log_probs.exp()) + ridge * (t - problem.start)
    factor = torch.linalg.cholesky(hessian + ridge.diag().to(hessian))
    step = torch.cholesky_solve(gradient[:, None].to(hessian), factor)[:, 0].double()
    for _ in range(40):
        decrease = before - problem.at(t - step, ridge)[1]
        if decrease >= 1e-4 * float(gradient @ step):
            return t - step, decrease
        step = step / 2
    return t, 0.0


def solve(problem: Problem, t: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    """The minimiser t, and V there."""
    for _ in range(100):
        hessian = problem.hessian(problem.at(t, ridge)[0].exp())
        t, decrease = newton_step(problem, t, hessian, ridge)
        if decrease < PRECISION:
            break
    return t, torch.cholesky_inverse(torch.linalg.cholesky(hessian + ridge.diag()))


def evidence(problem: Problem, group: Tensor, lambdas: Tensor) -> tuple[Tensor, Tensor]:
    """Parameters and ridges lambda (G,) of the groups: the fixed point of lambda = (gamma + 2) / (|t - start|^2 + 0.02).

    gamma counts the parameters of a group that the labels determine. Group 0 keeps its ridge.
    """
    t = problem.start
    for k in range(ROUNDS + 1):
        ridge, before = lambdas[group] / problem.n, lambdas
        hessian = problem.hessian(problem.at(t, ridge)[0].exp(), torch.float)
        if k:
            factor = torch.linalg.cholesky(hessian + ridge.diag().float())
            variance = torch.cholesky_inverse(factor).diagonal().double()
            gamma = torch.zeros_like(lambdas).index_add_(0, group, 1 - ridge * variance)
            length = torch.zeros_like(lambdas).index_add_(0, group, (t - problem.start).square())
            lambdas = (gamma + PRIOR_COUNT) / (length + PRIOR_COUNT / PRIOR_LAMBDA)
            lambdas = torch.cat([before[:1], lambdas[1:].clamp(SMALLEST_LAMBDA, LARGEST_LAMBDA)])
        t, _ = newton_step(problem, t, hessian, lambdas[group] / problem.n)
        if k and bool(((lambdas / before).log().abs() < SETTLED).all()):
            break
    return t, lambdas


def leave_one_out(problem: Problem, t: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """z' (C, n) of every node from the fit without it, and its mean variance (n,) of differences between classes."""
    z = problem.design.logits(*problem.split(t))
    p, residual = z.softmax(0).T[:, :, None], (z.softmax(0) - problem.target).T[:, :, None]
    steps, variances = [], []
    for nodes, covariance in problem.covariances(inverse):
        at, r = p[nodes].to(covariance), residual[nodes].to(covariance)
        if problem.classes <= MOST_SOLVED:
            eye = torch.eye(problem.classes).to(covariance)
            covariance = torch.linalg.solve(
                eye - covariance * at.mT + (covariance @ at) * at.mT, covariance
            )  # (I - S A)^-1 S
            step, trace, total = covariance @ r, covariance.diagonal(dim1=1, dim2=2).sum(1), covariance.sum((1, 2))
        else:  # as a series: the eigenvalues of S A, a node's share in its own fit, are below 1
            step = first = covariance @ r
            for _ in range(SERIES):
                before, step = step, first + covariance @ (at * (step - (at * step).sum(1, keepdim=True)))
                if float((step - before).abs().max()) < 1e-6:
                    break
            sums = covariance.sum(2, keepdim=True)
            trace = (
                covariance.diagonal(dim1=1, dim2=2).sum(1)
                + (covariance.square().mT @ at).sum((1, 2))
                - (covariance @ at).square().sum((1, 2))
            )
            total = (
                covariance.sum((1, 2)) + (at * sums.square()).sum((1, 2)) - (at * sums).sum((1, 2)).square()
            )  # of S + S A S
        steps.append(step[:, :, 0].double())
        variances.append(pair_variance(trace, total, problem.classes).double())
    return z + torch.cat(steps).T, torch.cat(variances)


def pair_variance(trace: Tensor, total: Tensor, classes: int) -> Tensor:
    return (2 * classes * trace - 2 * total) / (classes * (classes - 1))


def variance_forms(problem: Problem, inverse: Tensor) -> dict[str, Tensor]:
    """The small matrices of `Design.variance`; shared columns are centred over classes, so they have no part in 1^T S_n 1."""
    s, raw = problem.num_shared, problem.raw_covariance(inverse)
    by_class = raw[s:, s:].view(problem.classes, problem.q, problem.classes, problem.q)
    nothing, classes = torch.zeros(()).to(raw), problem.classes
    return {
        "by_shared": pair_variance(raw[:s, :s], nothing, classes),
        "by_both": pair_variance(2 * raw[:s, s:], nothing, classes).reshape(s, classes, problem.q),
        "by_class": pair_variance(by_class.diagonal(dim1=0, dim2=2).sum(-1), by_class.sum((0, 2)), classes),
    }


@dataclass(frozen=True, eq=False)
class FittedLevel:
    level: Level
    lambdas: dict[str, float]
    nodes: Tensor  # on which it was chosen
    log_probs: Tensor  # (C, n) leave-one-out of those
    plain: Tensor  # (C, n) the same of temperature scaling


def fit_level(
    design: Design, z: Tensor, y: Tensor, scale: Tensor, groups: list[str], like: dict[str, float]
) -> FittedLevel:
    """The member of a design and its mixture; ``groups`` names the ridges of shared columns and of x, ``like`` starts them."""
    target, nodes = platt_targets(y, z.T).T, torch.linspace(0, len(y) - 1, min(len(y), MOST_NODES)).round().long()
    problem, names = Problem(design.part(nodes), target[:, nodes], scale), list(dict.fromkeys(groups))
    numbers = torch.tensor([names.index(name) for name in groups])
    group = torch.cat([numbers[: problem.num_shared], numbers[problem.num_shared :].repeat(problem.classes)])
    first = torch.tensor([CONSTANT_LAMBDA, *(like.get(name, PRIOR_LAMBDA) for name in names[1:])]).to(z)
    t, lambdas = evidence(problem, group, first)
    t, inverse = solve(problem, t, lambdas[group] / problem.n)
    rows = z.T[nodes]
    plain = loo_logits(torch.zeros_like(rows), rows[:, :, None], problem.target.T, scale[None]).T.log_softmax(0)
    member = tempered(*leave_one_out(problem, t, inverse))
    stack = fit_stack(plain, member, problem.target)
    log_probs = stacked(plain, member, stack)
    top = fit_top(log_probs, predicted(z[:, nodes]), y[nodes])
    if len(y) > problem.n:
        raw, problem = t / problem.size, Problem(design, target, scale)
        t = torch.where(problem.size.isinf(), 0.0, raw * problem.size)
        t, inverse = solve(problem, t, lambdas[group] / problem.n)
    theta, weight = problem.split(t)
    state = {"theta": theta, "weight": weight, "stack": stack, "top": top, **variance_forms(problem, inverse)}
    return FittedLevel(
        Level(**{k: v.contiguous() for k, v in state.items()}),
        dict(zip(names, lambdas.tolist())),
        nodes,
        log_probs,
        plain,
    )


def fit_stack(plain: Tensor, member: Tensor, target: Tensor) -> Tensor:
    """w and e of (w p_ts + (1 - w) p_member)^e from leave-one-out log-probabilities (C, n): EM, then Newton."""
    n = target.shape[1]
    likelihood = torch.stack([(p * target).sum(0) for p in (plain, member)]).softmax(0)
    prior = likelihood.new_tensor([STACK_PRIOR + STACK_PRIOR_TS / n, STACK_PRIOR])
    weights = prior / prior.sum()
    for _ in range(1000):
        before, share = weights, likelihood * weights[:, None]
        weights = ((share / share.sum(0)).sum(1) + prior) / (n + prior.sum())
        if float((weights - before).abs().max()) < 1e-7:
            break
    mixed = stacked(plain, member, torch.stack([weights[0], torch.ones_like(weights[0])])).T
    exponent = fit_linear(torch.zeros_like(mixed), mixed[:, :, None], target.T, EXPONENT_LAMBDA / n, torch.ones(1))
    return torch.cat([weights[:1], exponent.clamp(min=SMALLEST_EXPONENT)])


def fit_top(log_probs: Tensor, top: Tensor, y: Tensor) -> Tensor:
    """a and b of keep mode: logistic regression of "the prediction is right" on the log odds of its projected probability."""
    odds = top_odds(pooled(log_probs, top), top)[0]
    right = top.gather(0, y[None])[0].double()
    terms = torch.stack(
        [torch.stack([odds, torch.ones_like(odds)], 1), torch.zeros(len(odds), 2).to(odds)], 1
    )  # (n, 2, 2)
    target = torch.stack([right, 1 - right], 1)
    fitted = fit_linear(torch.zeros_like(target), terms, target, TOP_LAMBDA / len(y), torch.tensor([1.0, 0.0]))
    return torch.stack([fitted[0].clamp(min=SMALLEST_SLOPE), fitted[1]])


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
    field : bool, default=False
        Add the residuals that communities share (`graphcal.methods.graph_scaling.field`). It then serves this graph alone.
    sets : bool, default=False
        Keep ten fits without a tenth of the labels each, which `graphcal.count` needs.

    Examples
    --------
    >>> import graphcal
    >>> out = graphcal.example()
    >>> data = out.graph
    >>> calibrate = graphcal.GraphScaling().fit(out, on=data.val_mask)
    >>> calibrate(out).shape, calibrate.level
    (torch.Size([500, 5]), 'logits · edges · hidden')
    >>> keep = graphcal.GraphScaling(predictions="keep").fit(out, on=data.val_mask)
    >>> bool((keep(out).argmax(-1) == out.pred).all())
    True
    """

    predictions: str = "free"
    hidden: bool = True
    inputs: bool = False
    field: bool = False
    sets: bool = False

    card: ClassVar[Card] = Card(
        title="Graph scaling",
        formula="p = (w softmax(s z) + (1 - w) softmax(z' / sqrt(1 + pi/8 v)))^e, z' = (a.f)z + (u.f)v1 + u2 v2 + B[1; z; h; x]",
        paper="this library",
        parameters="about 17 + (33 + C) C under ridges, w and e; B has at most 1,000 entries",
        cost="fit: some fifteen Newton steps on the fitted nodes; apply: O(E C + N (q^2 + 17 C q)), q the width of B",
        keeps_predictions=False,
        minimises_nll=True,
        departures="not a published method. Levels: logits and edges; and hidden (default); and inputs (inputs=True)",
    )

    def __post_init__(self) -> None:
        if self.predictions not in ("free", "keep"):
            raise ValueError(f"predictions={self.predictions!r} is not one of free, keep.")
        if self.field and self.sets:
            raise ValueError("field=True and sets=True use the same residuals. Pass one of them.")

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> GraphScaled:
        """Fit on the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        if self.field and out.graph.get("edge_index") is None:
            raise ValueError("field=True needs communities, but the graph has no edge_index.")
        nodes = canonical_order(out.logits, on)
        with one_thread(), torch.no_grad():
            z, y = _centred(out.logits[nodes]), out.graph.y[nodes]  # (C, n)
            scale = fit_scale(z.T, y)[0]
            state = {"scale": scale, "matrix": columns.principal_directions(z), **self._reading(out, nodes)}
            reader = GraphScaled(num_classes=out.num_classes, **state)
            context = reader.context_of(out)
            around, extra = context[nodes].T.double().split([reader.width, context.shape[1] - reader.width])
            reader = GraphScaled(**(state := {**state, **columns.covariate_units(*reader.covariates(z, around))}))
            base, best, present = _fit_levels(reader, z, y, around, extra, scale)
            levels = {"base": base.level, "extra": best.level if len(extra) else None}
            if self.sets:
                state["sets"] = self._refits(out, nodes, reader, context, z, y)
            nodes, z, y = nodes[present], z[:, present], y[present]
            note = f"level: {reader.level}; {_gain(best, z, y)}"
            if self.field:
                state["field"], left_out, amount = residual_field(
                    out.graph, out.pred, nodes[best.nodes], best.log_probs, y[best.nodes]
                )
                log_probs = (best.log_probs + left_out).log_softmax(0)
                best.level.top.copy_(fit_top(log_probs, predicted(z[:, best.nodes]), y[best.nodes]))
                nll = -float(log_probs.gather(0, y[best.nodes][None]).mean())
                note += f"; residual field times {amount:g}: leave-one-out NLL {nll:.4f}"
            note += _missing_classes(out.num_classes, y) + weight_note(out.logits[on], out.graph.y[on])
            note += _selection(out, on, reader, context)
            return GraphScaled(**state, **levels, predictions=self.predictions, note=note, **fitted_on(out, on))

    def _refits(
        self, out: Outputs, nodes: Tensor, reader: GraphScaled, context: Tensor, z: Tensor, y: Tensor
    ) -> Refits:
        """Fits without one of ten folds each, and the log-probabilities that they give to its nodes."""
        if len(nodes) < 2 * FOLDS:
            raise ValueError(f"sets=True needs at least {2 * FOLDS} labelled nodes, got {len(nodes)}.")
        fold = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(0)) % FOLDS
        around, extra = context[nodes].T.double().split([reader.width, context.shape[1] - reader.width])
        scales, base, best = [], [], []
        for k in range(FOLDS):
            rest = fold != k
            scales.append(fit_scale(z[:, rest].T, y[rest])[0])
            first, last, _ = _fit_levels(reader, z[:, rest], y[rest], around[:, rest], extra[:, rest], scales[-1])
            base.append(first.level)
            best.append(last.level)
        refits = Refits(
            nodes=nodes,
            labels=y,
            groups=node_groups(out.graph, out.pred)[0][:, nodes.cpu()],
            facts=node_facts(out)[nodes.cpu()].to(z),
            held_out=torch.zeros(len(nodes), out.num_classes).to(z),
            scale=torch.stack(scales),
            base=stacked_levels(base),
            extra=stacked_levels(best) if len(extra) else None,
        )
        state = {name: getattr(reader, name) for name in GraphScaled.__annotations__ if hasattr(reader, name)}
        state |= {"base": None, "extra": None, "sets": refits, "predictions": self.predictions, "note": ""}
        for k, refit in enumerate(GraphScaled(**state).refits()):
            rows = nodes[fold == k]
            refits.held_out[fold == k] = refit.log_probs(out.logits[rows], context[rows]).double()
        return refits

    def _reading(self, out: Outputs, nodes: Tensor) -> dict[str, Any]:
        """Components of the hidden representation and of the inputs that the context uses."""
        x, graph = out.graph.get("x") if self.inputs else None, graph_sums(out.graph)
        if self.inputs and x is None:
            raise ValueError("inputs=True needs node features, but the graph has no x.")
        if x is not None and x.dim() != 2:
            raise ValueError(f"inputs=True needs features of shape (N, D), but x is {tuple(x.shape)}.")
        if x is not None and not lengths(x).isfinite().all():
            row = int(lengths(x).isfinite().logical_not().nonzero()[0, 0])
            raise ValueError(
                f"inputs=True needs finite features, but the length of row {row} of x is not. Fill missing values first."
            )
        state: dict[str, Any] = {
            "edges": graph is not None,
            "hidden": None,
            "inputs": None,
            "directions": None,
            "field": None,
            "sets": None,
        }
        hidden = out.hidden if self.hidden else None
        if hidden is not None and 2 * int(hidden[nodes].isfinite().all(1).sum()) < len(nodes):
            hidden = None  # a fit on few of the labels would serve all other rows
        num_hidden, num_inputs = columns.component_counts(out.num_classes, hidden is not None, self.inputs)
        if hidden is not None and num_hidden:
            state["hidden"] = Components.of(hidden, nodes, num_hidden)
        if x is not None and num_inputs:
            state["directions"] = columns.singular_directions(x)
            along = columns.direction_rows(x, state["directions"])
            around = (graph or isolated_nodes(out.num_nodes, along)).neighbour_sum(along)
            state["inputs"] = Components.of(columns.with_neighbours(along, around), nodes, num_inputs)
        return state


@dataclass(frozen=True)
class KeptGraphScaling(GraphScaling):
    """Graph scaling that never changes a prediction.

    The same as ``GraphScaling(predictions="keep")``, under a name of its own for tables and commands.
    """

    predictions: str = "keep"

    card: ClassVar[Card] = replace(GraphScaling.card, title="Graph scaling, predictions kept", keeps_predictions=True)


def _fit_levels(
    reader: GraphScaled, z: Tensor, y: Tensor, around: Tensor, extra: Tensor, scale: Tensor
) -> tuple[FittedLevel, FittedLevel, Tensor]:
    """The level of logits and edges, the highest level, and the nodes (n,) that the highest one was fitted on."""
    groups = ["constant", *(by_covariates := ["covariates"] * len(reader.centre))]
    groups += ["neighbours", *(f"neighbours {name}" for name in by_covariates), "neighbours"] * reader.edges
    design = reader.design(z, around)
    groups += ["bias", *["matrix"] * reader.matrix.shape[1]][: len(design.x)]
    base = fit_level(design, z, y, scale, groups, {})
    present = extra.isfinite().all(0)
    if not len(extra):
        return base, base, present
    parts = {"hidden": reader.hidden, "inputs": reader.inputs}
    groups += [name for name, part in parts.items() if part is not None for _ in part.low]
    design = reader.design(z, around, extra).part(present)
    return base, fit_level(design, z[:, present], y[present], scale, groups, base.lambdas), present


def _centred(logits: Tensor) -> Tensor:
    """Centred logits (C, n) in double precision, from (n, C)."""
    return (logits.double() - logits.double().mean(1, keepdim=True)).T


def _gain(best: FittedLevel, z: Tensor, y: Tensor) -> str:
    """Leave-one-out NLL against temperature scaling, and what other predictions would gain."""
    y, pred, moved = y[best.nodes], z[:, best.nodes].argmax(0), best.log_probs.argmax(0)
    before, after = (-float(p.gather(0, y[None]).mean()) for p in (best.plain, best.log_probs))
    accuracy = [100 * float((p == y).double().mean()) for p in (pred, moved)]
    return (
        f"leave-one-out NLL {after:.4f} (temperature scaling {before:.4f}); another class leads on "
        f"{int((pred != moved).sum())} of {len(y)} fitted nodes: leave-one-out accuracy {accuracy[0]:.1f} -> {accuracy[1]:.1f} %"
    )


def _missing_classes(classes: int, y: Tensor) -> str:
    """Classes that no fitted node has."""
    missing = sorted(set(range(classes)) - set(y.tolist()))
    some = ", ".join(map(str, missing[:5])) + ", ..." * (len(missing) > 5)
    return f"; no fitted node is of {len(missing)} of {classes} classes ({some})" if missing else ""


def _selection(out: Outputs, on: Tensor, reader: GraphScaled, context: Tensor) -> str:
    """Comparison of the fitted nodes with other nodes outside training, by covariates and tempered probabilities."""
    others = ~on if out.graph.get("train_mask") is None else ~on & ~out.graph.train_mask
    generator = torch.Generator().manual_seed(0)
    groups = [nodes.nonzero().flatten().cpu() for nodes in (on, others)]
    groups = [ids[torch.randperm(len(ids), generator=generator)[:most]] for ids, most in zip(groups, COMPARED)]
    nodes = torch.cat(groups).to(on.device)
    raw, _ = reader.covariates(_centred(out.logits[nodes]), context[nodes].T.double())
    log_probs = (reader.scale * out.logits[nodes].double()).log_softmax(-1).cpu().numpy()
    values = {**prediction_covariates(log_probs), **dict(zip(columns.COVARIATES[-len(raw) :], raw.cpu().numpy()))}
    fitted, rest = (
        {name: value[part] for name, value in values.items()}
        for part in (slice(len(groups[0])), slice(len(groups[0]), None))
    )
    comparison = compare_rows(fitted, rest, draws=DRAWS) if len(groups[1]) else None
    if comparison is None or not comparison.differ:
        return ""
    text = comparison.text("the fitted nodes", "the others")
    return f"; {text} (AUC {comparison.auc:.2f}): what was measured on the fitted nodes may not carry over"
