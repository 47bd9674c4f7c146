"""Columns of graph scaling: covariates of a node, its neighbours' opinions, principal components, and the design.

    agree        share of neighbours with the node's predicted class
    agree_2hop   the same over walks of length two that do not return to the node
    log_degree   log(1 + number of neighbours)
    support      the neighbours' mean probability of the node's predicted class
    conf_gap     the node's confidence minus the neighbours' mean confidence
    entropy      of the neighbours' mean probabilities
    isolated     1 for a node without neighbours, which has no value of the others but log_degree
    logit_norm   length of the node's centred logits

Opinions v1 and v2 are directions in logit space: the centred log of the mean probability over neighbours and over walks of length
two that do not return. Probabilities are tempered by the scale of temperature scaling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcal.core import Calibration

COVARIATES = ("agree", "agree_2hop", "log_degree", "support", "conf_gap", "entropy", "isolated", "logit_norm")
NEED_NEIGHBOURS = tuple(name not in ("log_degree", "isolated", "logit_norm") for name in COVARIATES)
ISOLATED, GRAPH_COVARIATES = COVARIATES.index("isolated"), len(COVARIATES) - 1
ENOUGH_ISOLATED = 10  # fitted nodes without neighbours, for a covariate of their own
WIDEST = 3.0  # standardized covariates are clamped to this, and to the range of the fitted nodes
SMALLEST_OPINION = 1e-6  # probability of a neighbourhood, so that its log is finite
MATRIX_ENTRIES, CLASS_ENTRIES = 400, 1000  # at most: of the matrix on the logits, and of B in all
HIDDEN, INPUTS, DIRECTIONS = 32, 48, 32  # components of the hidden representation and of the inputs; directions of X
SMALLEST_SPREAD = 1e-3  # of a unit, as a share of the largest: others are dropped
CHUNK = 2**22  # numbers in one intermediate


def opinion_rows(logits: Tensor, scale: Tensor) -> Tensor:
    """Values read by neighbours (n, 2 C + 2): one-hot prediction, tempered probabilities, confidence, and 1 to count."""
    probs = (scale.to(logits) * logits).softmax(-1)
    hard = torch.zeros_like(probs).scatter(1, logits.argmax(-1, keepdim=True), 1.0)
    return torch.cat([hard, probs, probs.amax(-1, keepdim=True), torch.ones_like(probs[:, :1])], 1)


def graph_rows(opinions: Tensor, one: Tensor, two: Tensor, reciprocal: Tensor) -> Tensor:
    """Covariates and opinions (n, 7 + 2 C) from `opinion_rows` of the nodes and their sums one and two steps away."""
    classes = opinions.shape[1] // 2 - 1
    two = two - reciprocal.to(two) * opinions  # without walks that return
    degree, isolated = one[:, -1:], (one[:, -1:] == 0).to(one)
    hard, _, conf, _ = opinions.split([classes, classes, 1, 1], 1)
    hard_1, probs_1, conf_1 = (one[:, :-1] / degree.clamp(min=1)).split([classes, classes, 1], 1)
    hard_2, probs_2, _ = (two[:, :-1] / two[:, -1:].clamp(min=1)).split([classes, classes, 1], 1)
    agree, agree_2hop, support = ((hard * mean).sum(1, keepdim=True) for mean in (hard_1, hard_2, probs_1))
    entropy = torch.special.entr(probs_1).sum(1, keepdim=True)
    covariates = [agree, agree_2hop, degree.log1p(), support, conf - conf_1, entropy, isolated]
    return torch.cat([*covariates, neighbour_log_mean(probs_1), neighbour_log_mean(probs_2)], 1)


def neighbour_log_mean(probs: Tensor) -> Tensor:
    """Centred log of mean probabilities (n, C); 0 where the mean is over nothing."""
    log = probs.clamp(min=SMALLEST_OPINION).log()
    return (log - log.mean(-1, keepdim=True)) * (probs.sum(-1, keepdim=True) > 0)


def covariate_units(raw: Tensor, isolated: Tensor) -> dict[str, Tensor]:
    """Centre, rate (1 / spread) and range (F,) of raw covariates (F, n) on the fitted nodes.

    A constant covariate has rate 0, and so has ``isolated`` with fewer than ten such nodes.
    """
    present = ~(isolated & _need_neighbours(raw))
    count = present.sum(1).clamp(min=1)
    centre = (raw * present).sum(1) / count
    spread = (((raw - centre[:, None]) * present).square().sum(1) / count).sqrt()
    rate = torch.where(spread > 1e-6, 1 / spread.clamp(min=1e-6), 0.0)
    if len(raw) > 1 and int(isolated.sum()) < ENOUGH_ISOLATED:
        rate[ISOLATED] = 0.0
    units = (raw - centre[:, None]) * rate[:, None] * present
    low, high = units.amin(1).clamp(-WIDEST, 0.0), units.amax(1).clamp(0.0, WIDEST)
    return {"centre": centre, "rate": rate, "low": low, "high": high}


def standardized(raw: Tensor, isolated: Tensor, centre: Tensor, rate: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """A constant and the covariates (1 + F, n) in units of their spread, clamped; average where a node has no value."""
    centre, rate, low, high = (unit.to(raw)[:, None] for unit in (centre, rate, low, high))
    units = (raw - centre) * rate * ~(isolated & _need_neighbours(raw))
    return torch.cat([torch.ones_like(units[:1]), torch.minimum(torch.maximum(units, low), high)])


def _need_neighbours(raw: Tensor) -> Tensor:
    return torch.tensor(NEED_NEIGHBOURS[-len(raw) :], device=raw.device)[:, None]


class Components(Calibration):
    """Principal components of a representation, clamped to the range of the fitted nodes."""

    centre: Tensor  # (D,)
    rotation: Tensor  # (D, k)
    low: Tensor  # (k,)
    high: Tensor  # (k,)

    @classmethod
    def of(cls, values: Tensor, nodes: Tensor, count: int) -> Components:
        """Components of values (N, D), centred and scaled on the fitted ``nodes``, with the covariance over all nodes."""
        fitted = values[nodes].double()
        fitted = fitted[fitted.isfinite().all(1)]
        centre, spread = fitted.mean(0), fitted.std(0, correction=0)
        alive = spread > SMALLEST_SPREAD * spread.max()
        scale = torch.where(alive, 1 / torch.where(alive, spread, 1.0), 0.0)
        covariance = torch.zeros(len(centre), len(centre)).to(centre)
        for part in values.split(max(1, CHUNK // len(centre))):
            units = ((part.double() - centre) * scale).nan_to_num(0.0, 0.0, 0.0)
            covariance += units.T @ units
        rotation = scale[:, None] * torch.linalg.eigh(covariance)[1].flip(1)[:, : min(count, int(alive.sum()))]
        along = (fitted - centre) @ rotation
        return cls(centre=centre, rotation=rotation.contiguous(), low=along.amin(0), high=along.amax(0))

    def rows(self, values: Tensor) -> Tensor:
        if values.shape[1] != len(self.centre):
            raise ValueError(
                f"the representation has {values.shape[1]} columns, but the fit had {len(self.centre)}. Serve the model that was "
                "observed."
            )
        values = torch.where(values.isfinite(), values, torch.nan)  # no value: the row is served without this level
        along = (values - self.centre.to(values)) @ self.rotation.to(values)
        return torch.minimum(torch.maximum(along, self.low.to(values)), self.high.to(values))


def component_counts(classes: int, hidden: bool, inputs: bool) -> tuple[int, int]:
    """Number of components of the hidden representation and of the inputs that fit into B with q C <= 1,000."""
    wanted = HIDDEN * hidden, INPUTS * inputs
    room = max(0, CLASS_ENTRIES // classes - 1 - min(classes, MATRIX_ENTRIES // classes))
    share = min(1.0, room / max(1, sum(wanted)))
    return int(share * wanted[0]), int(share * wanted[1])


def direction_rows(inputs: Tensor, directions: Tensor) -> Tensor:
    """Inputs (n, D) with rows of unit length along directions (D, k), and 1 to count."""  # (n, k + 1)
    along = inputs.to(directions) @ directions / lengths(inputs).to(directions).clamp(min=1e-30)
    return torch.cat([along, torch.ones_like(along[:, :1])], 1)


def lengths(x: Tensor) -> Tensor:
    """Length of every row of X, dense or sparse."""  # (n, 1)
    if x.layout == torch.strided:
        return x.square().sum(1, keepdim=True).sqrt()
    entries = x.to_sparse_coo().coalesce()
    squares = torch.zeros(len(x)).to(entries.values()).index_add_(0, entries.indices()[0], entries.values().square())
    return squares.sqrt()[:, None]


def singular_directions(x: Tensor, count: int = DIRECTIONS, rounds: int = 6) -> Tensor:
    """The first right singular vectors (D, k) of X (N, D) with rows of unit length, by block power iteration."""
    generator = torch.Generator().manual_seed(0)
    weight, x = lengths(x).double().square().reciprocal().nan_to_num(posinf=0.0).float(), x.float()
    x = x if x.layout == torch.strided else x.to_sparse_coo()  # which can be transposed
    basis = torch.randn(x.shape[1], min(count + 16, *x.shape), generator=generator).to(x.device)
    for _ in range(rounds):
        basis = torch.linalg.qr(x.T @ (weight * (x @ torch.linalg.qr(basis)[0])))[0]
    along = x @ basis
    first: Tensor = torch.linalg.eigh(along.T @ (weight * along))[1].flip(1)[:, :count]
    return basis @ first


def with_neighbours(along: Tensor, around: Tensor) -> Tensor:
    """Values of nodes beside their neighbours' mean (n, 2 k), from values and sums whose last column counts."""
    return torch.cat([along[:, :-1], around[:, :-1] / around[:, -1:].clamp(min=1)], 1)


def principal_directions(z: Tensor) -> Tensor:
    """P (C, r) for centred logits z (C, n) of the fitted nodes: all logits up to 20 classes, else r = 400 // C directions."""
    rank = min(len(z), MATRIX_ENTRIES // len(z))
    return torch.eye(len(z)).to(z) if rank == len(z) else torch.linalg.eigh(z @ z.T)[1].flip(1)[:, :rank].contiguous()


@dataclass(frozen=True, eq=False)
class Design:
    """z'_n = (a . f_n) z_n + (u . f_n) v1_n + u2 v2_n + B x_n: parameters theta = (a, u, u2) (F,) and B (C, q)."""

    fields: tuple[Tensor, ...]  # (C, n) each: z, or z, v1 and v2
    f: Tensor  # (m, n) a constant and the covariates; v2 takes the constant alone
    x: Tensor  # (q, n), q may be 0

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, slice]]:
        """Each field with its covariates and the numbers of its parameters."""
        for k, field in enumerate(self.fields):
            width, first = 1 if k == 2 else len(self.f), k * len(self.f)
            yield field, self.f[:width], slice(first, first + width)

    @property
    def num_shared(self) -> int:
        """F"""
        return sum(len(f) for _, f, _ in self.blocks())

    def part(self, nodes: slice | Tensor) -> Design:
        return Design(tuple(field[:, nodes] for field in self.fields), self.f[:, nodes], self.x[:, nodes])

    def logits(self, theta: Tensor, weight: Tensor) -> Tensor:
        """z' (C, n)"""
        z = weight @ self.x
        for field, f, columns in self.blocks():
            z = z + (theta[columns] @ f) * field
        return z

    def variance(self, by_shared: Tensor, by_both: Tensor, by_class: Tensor) -> Tensor:
        """v (n,), quadratic in the columns: (F, F) of the shared ones, (F, C, q) between them and x, (q, q) of x."""
        total = (self.x * (by_class @ self.x)).sum(0)
        for field, f, a in self.blocks():
            across = (by_both[a].flatten(0, 1) @ self.x).view(len(f), *field.shape)  # (m, C, n)
            total = total + ((across * field).sum(1) * f).sum(0)
            for other, g, b in self.blocks():
                total = total + (f * (by_shared[a, b] @ g)).sum(0) * (field * other).sum(0)
        return total
