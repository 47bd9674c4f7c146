"""The calibration that graph scaling fits: what it reads around a node (`GraphScaled.context`) and the formula (`kernel`).

    p_ts      softmax(scale z)
    p_member  softmax(z' / sqrt(1 + pi/8 v)),  z' = (a . f) z + (u . f) v1 + u2 v2 + B [1 ; P^T z ; h ; s],  v the variance of z'
    p         (w p_ts + (1 - w) p_member)^e, normalised

f are a constant and the standardized covariates, v1 and v2 the neighbours' opinions, h and s components of the hidden
representation and of the inputs (`columns`).

``predictions="keep"``: p is projected onto the distributions that keep the prediction, its largest entry t becomes
sigmoid(a logit t + b), a > 0, the others are rescaled, and the result is projected again.

Levels: logits and edges; and hidden representation and inputs, where the fit had them. A row without those columns (NaN) gets the
first level; a row whose neighbourhood is unknown gets p_ts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from graphcal.core import Calibration, Needs
from graphcal.graphs import Columns, GraphSums
from graphcal.methods.graph_scaling import columns
from graphcal.methods.graph_scaling.columns import Components, Design
from graphcal.methods.solvers.scaling import keep_top


class Level(Calibration):
    """Parameters of the convex member and of its mixture with temperature scaling."""

    theta: Tensor  # (F,) of the shared columns
    weight: Tensor  # (C, q) B
    by_shared: Tensor  # (F, F) the variance of z', a quadratic form of the columns
    by_both: Tensor  # (F, C, q)
    by_class: Tensor  # (q, q)
    stack: Tensor  # (2,) w and e
    top: Tensor  # (2,) a and b of keep mode

    def member(self, design: Design) -> Tensor:
        """log p_member (C, n)"""
        theta, weight, *forms = (getattr(self, name).to(design.x) for name in list(Level.__annotations__)[:5])
        return tempered(design.logits(theta, weight), design.variance(*forms))


class Refits(Calibration):
    """Fits without one fold each, and the labelled nodes: for `graphcal.count` and `graphcal.estimate` (``sets=True``)."""

    nodes: Tensor  # (n,) labelled
    labels: Tensor  # (n,)
    groups: Tensor  # (L, n) of `graphcal.residuals.node_groups`, on the graph of the fit
    facts: Tensor  # (n, 3) of `graphcal.residuals.node_facts`
    held_out: Tensor  # (n, C) log-probabilities by the refit without the node
    scale: Tensor  # (K,) of every refit, and likewise
    base: Level
    extra: Level | None


class GraphScaled(Calibration):
    """Calibration fitted by `GraphScaling`."""

    edges: bool
    predictions: str
    note: str
    scale: Tensor  # () 1 / temperature
    matrix: Tensor  # (C, r) directions P of the logits that enter B
    centre: Tensor  # (F,) of the covariates on the fitted nodes, and likewise
    rate: Tensor
    low: Tensor
    high: Tensor
    base: Level  # logits and edges
    extra: Level | None  # and hidden representation, and inputs
    hidden: Components | None
    inputs: Components | None
    directions: Tensor | None  # (D, k) singular directions of the inputs
    field: Tensor | None  # (N, C) shift of the logits on the graph of the fit
    sets: Refits | None  # for counts of sets of nodes

    def refits(self) -> Iterator[GraphScaled]:
        """Calibrations without one fold of the labels each. They read the `context` of this one, which saw its temperature."""
        if self.sets is None:
            return
        state = {name: getattr(self, name) for name in GraphScaled.__annotations__}
        for k, scale in enumerate(self.sets.scale):
            levels = {name: _one(getattr(self.sets, name), k) for name in ("base", "extra")}
            yield GraphScaled(**{**state, **levels, "scale": scale, "sets": None}, num_classes=self.num_classes)

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        return Needs(
            edges=self.edges,
            hidden=self.hidden is not None,
            inputs=self.inputs is not None,
            same_graph=self.field is not None,
        )

    @property
    def level(self) -> str:
        """Inputs of the highest level."""
        return " · ".join(["logits", *(name for name in ("edges", "hidden", "inputs") if getattr(self.needs, name))])

    def context(
        self, logits: Columns, graph: GraphSums, hidden: Columns | None = None, inputs: Columns | None = None
    ) -> Columns:
        """Covariates, v1 and v2, and the components of hidden representation and inputs."""
        parts = []
        if self.edges:
            opinions = graph.rows(partial(columns.opinion_rows, scale=self.scale), logits)
            one = graph.neighbour_sum(opinions)
            two = graph.neighbour_sum(one)
            parts.append(graph.rows(columns.graph_rows, opinions, one, two, graph.reciprocal))
        if self.directions is not None and inputs is not None:
            along = graph.rows(partial(columns.direction_rows, directions=self.directions), inputs)
            inputs = graph.rows(columns.with_neighbours, along, graph.neighbour_sum(along))
        for components, values in ((self.hidden, hidden), (self.inputs, inputs)):
            if components is not None:
                absent = partial(_absent, width=components.rotation.shape[1])
                parts.append(graph.rows(absent, logits) if values is None else graph.rows(components.rows, values))
        if self.field is not None:
            absent = partial(_absent, width=self.field.shape[1])
            parts.append(self.field if graph.num_nodes == len(self.field) else graph.rows(absent, logits))
        return graph.rows(_side_by_side, logits, *parts)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        """Log-probabilities (C, n) of logits (C, n) and context (K, n)."""
        z, top = logits - logits.mean(0), predicted(logits) if self.predictions == "keep" else None
        tail = 0 if self.field is None else len(z)
        around, extra, field = context.to(z).split([self.width, len(context) - self.width - tail, tail])
        plain = (self.scale.to(z) * z).log_softmax(0)
        log_probs, traced = plain, _is_traced(z)
        present = extra.isfinite().all(0) & (self.extra is not None)
        if traced or not bool(present.all()):
            log_probs = _mixture(self.base, plain, self.design(z, around), field, top)
        if self.extra is not None and (traced or bool(present.any())):
            log_probs = torch.where(
                present, _mixture(self.extra, plain, self.design(z, around, extra), field, top), log_probs
            )
        if self.edges:
            log_probs = torch.where(around[0].isnan(), plain, log_probs)
        return log_probs if top is None else keep_top(log_probs, top.to(log_probs))

    @property
    def width(self) -> int:
        """Columns of the context that are read off the graph."""
        return columns.GRAPH_COVARIATES + 2 * len(self.matrix) if self.edges else 0

    def design(self, z: Tensor, around: Tensor, extra: Tensor | None = None) -> Design:
        """Columns for centred logits z (C, n), context of the graph and, at the higher level, components (k, n)."""
        f = columns.standardized(*self.covariates(z, around), self.centre, self.rate, self.low, self.high)
        opinions = around[columns.GRAPH_COVARIATES :].nan_to_num().split(len(z)) if self.edges else ()
        x = [torch.ones_like(z[:1]), self.matrix.to(z).T @ z] if len(z) <= columns.CLASS_ENTRIES else [z[:0]]
        return Design((z, *opinions), f, torch.cat(x if extra is None else [*x, extra.nan_to_num()]))

    def covariates(self, z: Tensor, around: Tensor) -> tuple[Tensor, Tensor]:
        """Covariates (F, n) in their own units, and which nodes are isolated (n,)."""
        norm: Tensor = z.norm(dim=0, keepdim=True)
        if not self.edges:
            return norm, torch.zeros_like(norm[0], dtype=torch.bool)
        raw = torch.cat([around[: columns.GRAPH_COVARIATES].nan_to_num(), norm])
        return raw, raw[columns.ISOLATED] == 1


def _one(levels: Level | None, k: int) -> Level | None:
    """The k-th of stacked levels."""
    return None if levels is None else Level(**{name: value[k] for name, value in levels.named_buffers()})


def stacked_levels(levels: Sequence[Level]) -> Level:
    """Levels along a new first axis."""
    return Level(**{name: torch.stack([getattr(one, name) for one in levels]) for name in Level.__annotations__})


def _is_traced(x: Tensor) -> bool:
    """Return whether values cannot be read (tracing, export): no branch is skipped then."""
    return torch.compiler.is_compiling() or x.device.type == "meta"


def _absent(logits: Tensor, width: int) -> Tensor:
    return logits.new_full((len(logits), width), torch.nan)


def _side_by_side(logits: Tensor, *parts: Tensor) -> Tensor:
    return torch.cat([logits[:, :0], *(part.to(logits) for part in parts)], 1)


def _mixture(level: Level, plain: Tensor, design: Design, field: Tensor, top: Tensor | None) -> Tensor:
    log_probs = stacked(plain, level.member(design), level.stack.to(plain))
    log_probs = (log_probs + field.nan_to_num()).log_softmax(0) if len(field) else log_probs
    return log_probs if top is None else kept(log_probs, top, level.top.to(plain))


def tempered(z: Tensor, variance: Tensor) -> Tensor:
    """log softmax(z / sqrt(1 + pi/8 v)) (C, n): probabilities averaged over the uncertainty of the parameters."""
    return (z * (1 + math.pi / 8 * variance.clamp(min=0)).rsqrt()).log_softmax(0)


def stacked(plain: Tensor, member: Tensor, stack: Tensor) -> Tensor:
    """log of (w p_ts + (1 - w) p_member)^e, normalised."""
    mixed = torch.logaddexp(stack[0].log() + plain, torch.log1p(-stack[0]) + member)
    return (stack[1] * mixed).log_softmax(0)


def predicted(logits: Tensor) -> Tensor:
    """The class of the largest logit, the first of equal ones, as a mask (C, n)."""
    score = (logits == logits.amax(0)) * torch.arange(len(logits), 0, -1).to(logits)[:, None]  # in floats, for ONNX
    return score == score.amax(0)


def kept(log_probs: Tensor, top: Tensor, sigmoid: Tensor) -> Tensor:
    """Distributions that keep the prediction ``top`` (C, n), with t -> sigmoid(a logit t + b) for its probability."""
    projected = pooled(log_probs, top)
    odds, rest = top_odds(projected, top)
    odds = sigmoid[0] * odds + sigmoid[1]
    return pooled(torch.where(top, logsigmoid(odds), projected - rest + logsigmoid(-odds)), top)


def top_odds(log_probs: Tensor, top: Tensor) -> tuple[Tensor, Tensor]:
    """log t / (1 - t) and log (1 - t), (n,) each, for the probability t of ``top``."""
    rest = torch.where(top, -torch.inf, log_probs).logsumexp(0)
    return torch.where(top, log_probs, -torch.inf).amax(0) - rest, rest


def pooled(log_probs: Tensor, top: Tensor) -> Tensor:
    """The distributions q nearest to p whose largest entry is that of ``top``: argmin KL(p || q).

    The predicted class and those above a level share their mean, which is that level. It rises from the probability of the
    predicted class until no class that shares lies below it.
    """
    probs = log_probs.exp()
    level = mine = (probs * top).sum(0)
    for _ in range(len(probs) - 1):
        above = probs > level
        before, level = level, (mine + (probs * above).sum(0)) / (1 + above.sum(0))
        if not _is_traced(probs) and torch.equal(before, level):
            break
    return torch.where((probs > level) | (top & (level > mine)), level.log(), log_probs)
