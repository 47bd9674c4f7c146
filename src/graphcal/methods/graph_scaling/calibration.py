"""The calibration that graph scaling fits: what it reads around a node (`GraphScaled.context`) and the formula (`kernel`).

    p_ts      softmax(scale z)
    p_member  softmax(z' / sqrt(1 + pi/8 v)),   z' = (a . f) z + (u . f) v1 + u2 v2 + B x,   v the variance of z' from the fit
    p         (w p_ts + (1 - w) p_member)^s, normalised

    keep: p is projected onto the distributions that keep the prediction, its largest entry t becomes sigmoid(a logit t + b) with
    a > 0, and the others are rescaled. Where another class is then ahead of t, the result is halfway (geometric mean) between its
    projection, which has the lowest NLL, and the distribution that keeps t and caps the others at t, whose confidence is right.

Levels: logits and edges; and, where the fit had them, hidden representation and inputs. Both levels are fitted. A row without hidden
or input columns (NaN) gets the first; a row whose neighbourhood is unknown gets p_ts.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from graphcal.core import Calibration, Needs, first_largest
from graphcal.engine.scaling import raised
from graphcal.graphs import Columns, GraphSums
from graphcal.methods.graph_scaling.columns import (
    CLASS_ENTRIES,
    GRAPH_COVARIATES,
    ISOLATED,
    Design,
    component_rows,
    direction_rows,
    graph_rows,
    opinion_rows,
    standardized,
)


class Level(Calibration):
    """Parameters of the convex member and of its stack with temperature scaling, for one set of columns."""

    theta: Tensor  # (F,) of the shared columns
    weight: Tensor  # (C, q) B
    by_shared: Tensor  # (F, F) the variance of z', a quadratic form of the columns
    by_both: Tensor  # (F, C, q)
    by_class: Tensor  # (q, q)
    stack: Tensor  # (2,) w and s
    top: Tensor  # (2,) a and b of keep mode

    def log_mixture(self, plain: Tensor, design: Design) -> Tensor:
        """Log-probabilities (C, n) for those of temperature scaling."""
        z, v = self.member(design)
        return stacked(plain, tempered(z, v), self.stack.to(z))

    def member(self, design: Design) -> tuple[Tensor, Tensor]:
        """z' (C, n) and its variance (n,)."""
        like = design.x
        z = design.logits(self.theta.to(like), self.weight.to(like))
        return z, design.variance(self.by_shared.to(like), self.by_both.to(like), self.by_class.to(like))


class GraphScaled(Calibration):
    """What `GraphScaling` fits."""

    hops = 2  # of complete neighbourhood that `context` reads

    edges: bool
    predictions: str
    note: str
    scale: Tensor  # () 1 / temperature
    matrix: Tensor  # (C, r) directions P of the logits that enter B x
    centre: Tensor  # (F,) of the covariates on the fitted nodes, and likewise
    rate: Tensor
    low: Tensor
    high: Tensor
    base: Level  # logits and edges
    extra: Level | None  # and hidden representation, and inputs
    hidden_centre: Tensor | None  # (D,) principal components of the hidden representation
    hidden_rotation: Tensor | None  # (D, k)
    hidden_low: Tensor | None
    hidden_high: Tensor | None
    directions: Tensor | None  # (D, k) singular directions of the inputs, and their principal components
    inputs_centre: Tensor | None
    inputs_rotation: Tensor | None
    inputs_low: Tensor | None
    inputs_high: Tensor | None

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        return Needs(edges=self.edges, hidden=self.hidden_rotation is not None, inputs=self.inputs_rotation is not None)

    @property
    def level(self) -> str:
        """Columns of the highest level."""
        names = [
            "logits",
            *["edges"] * self.needs.edges,
            *["hidden"] * self.needs.hidden,
            *["inputs"] * self.needs.inputs,
        ]
        return " · ".join(names)

    # ----------------------------------------------------------------------------------------------------------- context

    def context(
        self, logits: Columns, graph: GraphSums, hidden: Columns | None = None, inputs: Columns | None = None
    ) -> Columns:
        """Covariates, opinions v1 and v2, and the components of hidden representation and inputs (N, K)."""
        rows, columns = graph.rows, []
        if self.edges:
            opinions = rows(partial(opinion_rows, scale=self.scale), logits)
            one = graph.neighbour_sum(opinions)
            two = graph.neighbour_sum(one)
            columns.append(rows(graph_rows, opinions, one, two, graph.reciprocal))
        if self.hidden_rotation is not None:
            columns.append(self._components("hidden", graph, logits, hidden))
        if self.inputs_rotation is not None:
            columns.append(self._components("inputs", graph, logits, self._input_values(graph, inputs)))
        return rows(side_by_side, logits, *columns)

    def _components(self, name: str, graph: GraphSums, logits: Columns, values: Columns | None) -> Columns:
        centre, rotation, low, high = (
            getattr(self, f"{name}_{part}") for part in ("centre", "rotation", "low", "high")
        )
        if values is None:
            return graph.rows(lambda z: z.new_full((len(z), rotation.shape[1]), torch.nan), logits)
        return graph.rows(partial(component_rows, centre=centre, rotation=rotation, low=low, high=high), values)

    def _input_values(self, graph: GraphSums, inputs: Columns | None) -> Columns | None:
        """Singular directions of the inputs, of each node and of its neighbours' mean."""  # (N, 2 k)
        if inputs is None:
            return None
        along = graph.rows(partial(direction_rows, directions=self.directions), inputs)
        return graph.rows(with_neighbours, along, graph.neighbour_sum(along))

    # ------------------------------------------------------------------------------------------------------------ kernel

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        """Log-probabilities (C, n) for logits (C, n) and context (K, n)."""
        z = logits - logits.mean(0)
        context = context.to(z)
        plain = (self.scale.to(z) * z).log_softmax(0)
        log_probs = self._levels(plain, z, context)
        if self.edges:
            log_probs = torch.where(context[0].isnan(), plain, log_probs)
        if self.predictions == "free":
            return log_probs
        served = self.base if self.extra is None else self.extra
        return kept(log_probs, predicted(logits), served.top.to(z))

    def _levels(self, plain: Tensor, z: Tensor, context: Tensor) -> Tensor:
        extra = context[self._graph_width :]
        if self.extra is None:
            return self.base.log_mixture(plain, self.design(z, context))
        present = extra.isfinite().all(0)
        traced = torch.compiler.is_compiling()
        if not traced and bool(present.all()):
            return self.extra.log_mixture(plain, self.design(z, context, extra))
        without = self.base.log_mixture(plain, self.design(z, context))
        if not traced and not bool(present.any()):
            return without
        return torch.where(present, self.extra.log_mixture(plain, self.design(z, context, extra)), without)

    @property
    def _graph_width(self) -> int:
        return len(GRAPH_COVARIATES) + 2 * len(self.matrix) if self.edges else 0

    def design(self, z: Tensor, context: Tensor, extra: Tensor | None = None) -> Design:
        """The columns for centred logits z (C, n), context (K, n) and, at the higher level, components (k, n)."""
        raw, isolated = self.raw_covariates(z, context)
        f = standardized(raw, isolated, self.centre, self.rate, self.low, self.high)
        fields = (z,)
        if self.edges:
            fields = (z, *context[len(GRAPH_COVARIATES) : self._graph_width].nan_to_num().split(len(z)))
        x = [torch.ones_like(z[:1]), self.matrix.to(z).T @ z] if len(z) <= CLASS_ENTRIES else [z[:0]]
        return Design(fields, f, torch.cat(x if extra is None else [*x, extra.nan_to_num()]))

    def raw_covariates(self, z: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Covariates (F, n) in their own units, and which nodes are isolated (n,)."""
        norm: Tensor = z.norm(dim=0, keepdim=True)
        if not self.edges:
            return norm, torch.zeros_like(norm[0], dtype=torch.bool)
        graph = context[: len(GRAPH_COVARIATES)].nan_to_num()
        return torch.cat([graph, norm]), graph[ISOLATED] == 1


def side_by_side(logits: Tensor, *columns: Tensor) -> Tensor:
    """Columns (n, K) in the precision of the logits."""
    return torch.cat([logits[:, :0], *(column.to(logits) for column in columns)], 1)


def with_neighbours(along: Tensor, around: Tensor) -> Tensor:
    """Values of nodes beside their neighbours' mean (n, 2 k), from values with a last column that counts; 0 of none."""
    return torch.cat([along[:, :-1], around[:, :-1] / around[:, -1:].clamp(min=1)], 1)


# ------------------------------------------------------------------------------------------------- maps of (C, n)


def tempered(z: Tensor, variance: Tensor) -> Tensor:
    """log softmax(z / sqrt(1 + pi/8 v)): probabilities averaged over parameters that are not known exactly."""
    return (z * (1 + math.pi / 8 * variance.clamp(min=0)).rsqrt()).log_softmax(0)


def stacked(plain: Tensor, member: Tensor, stack: Tensor) -> Tensor:
    """log of (w p_ts + (1 - w) p_member)^s, normalised."""
    weight, exponent = stack
    mixed = torch.logaddexp(weight.log() + plain, torch.log1p(-weight) + member)
    return (exponent * mixed).log_softmax(0)


def predicted(logits: Tensor) -> Tensor:
    """The class of the largest logit, the first of equal ones, as a mask (C, n)."""
    return torch.arange(len(logits), device=logits.device)[:, None] == first_largest(logits)


def kept(log_probs: Tensor, top: Tensor, sigmoid: Tensor) -> Tensor:
    """Distributions that keep the prediction ``top`` (C, n), with t -> sigmoid(a logit t + b) for its probability."""
    projected = pooled(log_probs, top)
    odds, rest = top_odds(projected, top)
    odds = sigmoid[0] * odds + sigmoid[1]
    moved = torch.where(top, logsigmoid(odds), projected - rest + logsigmoid(-odds))
    moved = (0.5 * (pooled(moved, top) + capped(moved, top))).log_softmax(0)
    return raised(moved, top)


def top_odds(log_probs: Tensor, top: Tensor) -> tuple[Tensor, Tensor]:
    """log t / (1 - t) and log (1 - t), (n,) each, for the probability t of ``top``."""
    rest = log_probs.masked_fill(top, -torch.inf).logsumexp(0)
    return log_probs.masked_fill(~top, -torch.inf).amax(0) - rest, rest


def pooled(log_probs: Tensor, top: Tensor) -> Tensor:
    """The distributions nearest to ``log_probs`` (C, n) whose largest entry is that of ``top``: argmin_q KL(p || q).

    The predicted class and those above a common level share their mean probability, which is that level. The level rises from the
    probability of the predicted class until no class that shares lies below it.
    """
    probs = log_probs.exp()
    mine = level = (probs * top).sum(0)
    for _ in range(len(probs) - 1):
        above = probs > level
        mean = (mine + (probs * above).sum(0)) / (1 + above.sum(0))
        done = not torch.compiler.is_compiling() and torch.equal(mean, level)
        level = mean
        if done:
            break
    level_log = level.clamp(min=torch.finfo(probs.dtype).tiny).log()
    return torch.where(top & (level == mine), log_probs, torch.where(top | (probs > level), level_log, log_probs))


def capped(log_probs: Tensor, top: Tensor) -> Tensor:
    """The same distributions with no entry above that of ``top``, which stays, or is 1 / C if it is less than that.

    What others have above it goes to the rest, in proportion.
    """
    probs = log_probs.exp()
    most = (probs * top).sum(0).clamp(min=1 / len(probs))
    rest = full = probs.masked_fill(top, 0.0)
    for _ in range(len(probs) - 1):
        reached = full >= most
        room = 1 - most * (1 + reached.sum(0))
        below = rest.masked_fill(reached, 0.0)
        scaled = torch.where(reached, most, below * (room / below.sum(0).clamp(min=torch.finfo(probs.dtype).tiny)))
        done = not torch.compiler.is_compiling() and torch.equal(scaled, full)
        full = scaled
        if done:
            break
    probs = torch.where(top, most, torch.minimum(full, most))
    return probs.clamp(min=torch.finfo(probs.dtype).tiny).log()
