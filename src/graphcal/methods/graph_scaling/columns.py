"""Columns of graph scaling: named covariates, neighbours' opinions, principal components, and the design of the convex member.

Covariates of a node, functions of the logits and the edges:

    agree        share of neighbours with the node's predicted class
    agree_2hop   the same over walks of length two that do not return to the node
    log_degree   log(1 + number of neighbours)
    support      the neighbours' mean probability of the node's predicted class
    conf_gap     the node's confidence minus the neighbours' mean confidence
    entropy      of the neighbours' mean probabilities
    isolated     1 for a node without neighbours
    logit_norm   length of the node's centred logits

Opinions v1 and v2 are directions in logit space: the centred log of the mean probability over neighbours and over walks of length
two that do not return. Probabilities are tempered by the scale of temperature scaling.

The design has the classes along the first axis and nodes along the last:

    z'_n = (a . f_n) z_n + (u . f_n) v1_n + u2 v2_n + B x_n,     x_n = [1 ; P^T z_n ; h_n ; s_n]

f are a constant and the standardized covariates; h and s are principal components of the hidden representation and of the inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

GRAPH_COVARIATES = ("agree", "agree_2hop", "log_degree", "support", "conf_gap", "entropy", "isolated")
COVARIATES = (*GRAPH_COVARIATES, "logit_norm")
NEEDS_NEIGHBOURS = tuple(name not in ("log_degree", "isolated", "logit_norm") for name in COVARIATES)
ISOLATED = COVARIATES.index("isolated")
ENOUGH_ISOLATED = 10  # fitted nodes without neighbours, for a covariate of their own
WIDEST = 3.0  # standardized covariates are clamped to this, and to the range of the fitted nodes
SMALLEST_OPINION = 1e-6  # probability of a neighbourhood, so that its log is finite
MATRIX_ENTRIES, CLASS_ENTRIES = 400, 1000  # at most: of the matrix on the logits, and of B in all
HIDDEN, INPUTS, DIRECTIONS = (
    32,
    48,
    32,
)  # components of the hidden representation and the inputs; singular directions of X
SMALLEST_SPREAD = 1e-3  # of a unit, as a share of the largest: others are dropped
CHUNK = 2**22  # numbers in one intermediate


# ------------------------------------------------------------------------------------------------- around a node: (n, columns)


def opinion_rows(logits: Tensor, scale: Tensor) -> Tensor:
    """What neighbours read of a node (n, 2 C + 2): one-hot prediction, tempered probabilities, confidence, and 1 to count."""
    probs = (scale.to(logits) * logits).softmax(-1)
    hard = torch.zeros_like(probs).scatter(1, logits.argmax(-1, keepdim=True), 1.0)
    return torch.cat([hard, probs, probs.amax(-1, keepdim=True), torch.ones_like(probs[:, :1])], 1)


def graph_rows(opinions: Tensor, one: Tensor, two: Tensor, reciprocal: Tensor) -> Tensor:
    """Covariates and opinions (n, 7 + 2 C) from `opinion_rows` of the nodes and their sums one and two steps away."""
    classes = opinions.shape[1] // 2 - 1
    two = two - reciprocal.to(two) * opinions  # without walks that return
    degree = one[:, -1:]
    one, two = one[:, :-1] / degree.clamp(min=1), two[:, :-1] / two[:, -1:].clamp(min=1)
    hard, _, conf, _ = opinions.split([classes, classes, 1, 1], 1)
    hard_1, probs_1, conf_1 = one.split([classes, classes, 1], 1)
    hard_2, probs_2, _ = two.split([classes, classes, 1], 1)
    isolated = (degree == 0).to(one)
    covariates = [
        (hard * hard_1).sum(1, keepdim=True),
        (hard * hard_2).sum(1, keepdim=True),
        degree.log1p(),
        (hard * probs_1).sum(1, keepdim=True),
        (conf - conf_1) * (1 - isolated),
        torch.special.entr(probs_1).sum(1, keepdim=True),
        isolated,
    ]
    return torch.cat([*covariates, log_opinion(probs_1), log_opinion(probs_2)], 1)


def log_opinion(probs: Tensor) -> Tensor:
    """Centred log of mean probabilities (n, C); 0 where the mean is over nothing."""
    log = probs.clamp(min=SMALLEST_OPINION).log()
    return (log - log.mean(-1, keepdim=True)) * (probs.sum(-1, keepdim=True) > 0)


def direction_rows(inputs: Tensor, directions: Tensor) -> Tensor:
    """Inputs (n, D) with rows of unit length along some directions (D, k), and 1 to count."""  # (n, k + 1)
    length = inputs.square().sum(-1, keepdim=True).sqrt() if inputs.layout == torch.strided else _lengths(inputs)
    along = inputs.to(directions.dtype) @ directions / length.clamp(min=torch.finfo(directions.dtype).tiny)
    return torch.cat([along, torch.ones_like(along[:, :1])], 1)


def _lengths(x: Tensor) -> Tensor:
    entries = x.to_sparse_coo().coalesce()
    total = entries.values().new_zeros(len(x)).index_add_(0, entries.indices()[0], entries.values().square())
    return total.sqrt()[:, None]


def singular_directions(x: Tensor, count: int = DIRECTIONS, rounds: int = 6) -> Tensor:
    """The first right singular vectors (D, k) of X (N, D) with rows of unit length, by block power iteration."""
    draw = torch.Generator().manual_seed(0)
    width = min(count + 16, *x.shape)
    basis = torch.randn(x.shape[1], width, generator=draw, dtype=torch.double).to(x.device, torch.float32)
    lengths = (x.square().sum(-1, keepdim=True).sqrt() if x.layout == torch.strided else _lengths(x)).float()
    weight, x = lengths.square().reciprocal().nan_to_num(posinf=0.0), x.float()
    for _ in range(rounds):
        basis = torch.linalg.qr(x.T @ (weight * (x @ torch.linalg.qr(basis)[0])))[0]
    along = weight.sqrt() * (x @ basis)
    values, vectors = torch.linalg.eigh((along.T @ along).double())
    return basis @ vectors.flip(1)[:, : min(count, width)].float()


# ------------------------------------------------------------------------------------------------- fitted units


def principal_components(values: Tensor, nodes: Tensor, count: int) -> dict[str, Tensor]:
    """Centre (D,), rotation (D, k) and range (k,) of the first components of values (N, D).

    Units are centred and scaled on the fitted ``nodes``; the covariance is over all nodes; the range is that of the fitted ones.
    """
    fitted = values[nodes].double()
    fitted = fitted[fitted.isfinite().all(1)]
    centre, spread = fitted.mean(0), fitted.std(0, correction=0)
    alive = spread > SMALLEST_SPREAD * spread.max()
    scale = torch.where(alive, 1 / spread.clamp(min=torch.finfo(spread.dtype).tiny), 0.0)
    covariance = centre.new_zeros(len(centre), len(centre))
    for part in values.split(max(1, CHUNK // len(centre))):
        units = ((part.double() - centre) * scale).nan_to_num()
        covariance += units.T @ units
    _, vectors = torch.linalg.eigh(covariance / len(values))
    rotation = scale[:, None] * vectors.flip(1)[:, : min(count, int(alive.sum()))]
    along = (fitted - centre) @ rotation
    return {"centre": centre, "rotation": rotation, "low": along.amin(0), "high": along.amax(0)}


def component_rows(values: Tensor, centre: Tensor, rotation: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Principal components (n, k) of values (n, D), clamped to the range of the fitted nodes."""
    along = (values - centre.to(values)) @ rotation.to(values)
    return torch.minimum(torch.maximum(along, low.to(values)), high.to(values))


def principal_directions(z: Tensor) -> Tensor:
    """P (C, r) for centred logits z (C, n) of the fitted nodes: all logits up to 20 classes, else r = 400 // C directions."""
    classes = len(z)
    rank = min(classes, MATRIX_ENTRIES // classes)
    if rank == classes:
        return torch.eye(classes, dtype=z.dtype, device=z.device)
    return torch.linalg.eigh(z @ z.T)[1].flip(1)[:, :rank]


def component_counts(classes: int, hidden: bool, inputs: bool) -> tuple[int, int]:
    """How many components of the hidden representation and of the inputs fit into B with q C <= 1,000."""
    wanted = (HIDDEN * hidden, INPUTS * inputs)
    room = max(0, CLASS_ENTRIES // classes - 1 - min(classes, MATRIX_ENTRIES // classes))
    if sum(wanted) <= room:
        return wanted
    shares = [room * count // sum(wanted) for count in wanted]
    return shares[0], shares[1]


def covariate_units(raw: Tensor, isolated: Tensor) -> dict[str, Tensor]:
    """Centre, rate (1 / spread) and range (F,) of raw covariates (F, n) on the fitted nodes.

    Isolated nodes have no value of the covariates that need neighbours. A constant covariate has rate 0, and so has ``isolated``
    with fewer than ten such nodes.
    """
    present = ~(isolated & _needs_neighbours(raw))
    count = present.sum(1, keepdim=True).clamp(min=1)
    centre = (raw * present).sum(1, keepdim=True) / count
    spread = (((raw - centre) * present).square().sum(1, keepdim=True) / count).sqrt()
    rate = torch.where(spread > 1e-6, 1 / spread.clamp(min=1e-6), 0.0)
    if len(raw) > 1 and int(isolated.sum()) < ENOUGH_ISOLATED:
        rate[ISOLATED] = 0.0
    units = (raw - centre) * rate * present
    low, high = units.amin(1).clamp(-WIDEST, 0.0), units.amax(1).clamp(0.0, WIDEST)
    return {"centre": centre[:, 0], "rate": rate[:, 0], "low": low, "high": high}


def standardized(raw: Tensor, isolated: Tensor, centre: Tensor, rate: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """A constant and the covariates (1 + F, n) in units of their spread, clamped; average where they have no value."""
    units = (raw - centre.to(raw)[:, None]) * rate.to(raw)[:, None] * ~(isolated & _needs_neighbours(raw))
    units = torch.minimum(torch.maximum(units, low.to(raw)[:, None]), high.to(raw)[:, None])
    return torch.cat([torch.ones_like(units[:1]), units])


def _needs_neighbours(raw: Tensor) -> Tensor:
    return torch.tensor(NEEDS_NEIGHBOURS[-len(raw) :], device=raw.device)[:, None]


# ------------------------------------------------------------------------------------------------- the design: (..., n)


@dataclass(frozen=True, eq=False)
class Design:
    """Columns of the convex member; parameters are one number per (field, covariate) pair, then B (C, q) row by row."""

    fields: tuple[Tensor, ...]  # (C, n) each: z, or z, v1 and v2
    f: Tensor  # (m, n) a constant and the covariates; v2 takes the constant alone
    x: Tensor  # (q, n), q may be 0

    @cached_property
    def slices(self) -> list[slice]:
        """Parameters of each field; those of B come after the last one."""
        ends = itertools.accumulate([len(self.f), len(self.f), 1][: len(self.fields)], initial=0)
        return [slice(a, b) for a, b in itertools.pairwise(ends)]

    @property
    def shared(self) -> int:
        return self.slices[-1].stop

    def part(self, nodes: slice | Tensor) -> Design:
        return Design(tuple(field[:, nodes] for field in self.fields), self.f[:, nodes], self.x[:, nodes])

    def parts(self, each: int) -> Iterator[tuple[slice, Design]]:
        """Parts of so many nodes that an intermediate with ``each`` numbers per node stays small."""
        size = max(1, CHUNK // max(each, 1))
        for first in range(0, self.f.shape[1], size):
            nodes = slice(first, first + size)
            yield nodes, self.part(nodes)

    def logits(self, theta: Tensor, weight: Tensor) -> Tensor:
        """z' (C, n) for shared parameters theta (F,) and B (C, q)."""
        z = weight @ self.x
        for field, columns in zip(self.fields, self.slices):
            amounts = theta[columns]
            z = z + (amounts @ self.f[: len(amounts)]) * field
        return z

    def variance(self, by_shared: Tensor, by_both: Tensor, by_class: Tensor) -> Tensor:
        """v (n,), quadratic in the columns: (F, F) of the shared ones, (F, C, q) between them and x, (q, q) of x."""
        total = (self.x * (by_class @ self.x)).sum(0)
        for a, (field, columns) in enumerate(zip(self.fields, self.slices)):
            width = columns.stop - columns.start
            across = (by_both[columns].flatten(0, 1) @ self.x).view(width, *field.shape)  # (m, C, n)
            total = total + ((across * field).sum(1) * self.f[:width]).sum(0)
            for b, other in enumerate(self.slices):
                inner = (self.f[:width] * (by_shared[columns, other] @ self.f[: other.stop - other.start])).sum(0)
                total = total + inner * (field * self.fields[b]).sum(0)
        return total
