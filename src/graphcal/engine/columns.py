"""The columns X_n (C, K) of logits that are linear in their parameters, z_n = base_n + X_n theta, in two forms.

`DenseColumns` writes all of X down. `StructuredColumns` knows that most of it is products and zeros:

    z_nc = base_nc + sum_j (rows_j,n . theta_j) fields_j,nc + sum_i own_nci theta_ci

A *field* (n, C) is a direction in logit space with an amount that is linear in a few numbers of the node (a scale on the logits
that depends on facts of the node); an *own* term acts on one class alone (a bias, a row of a matrix). With A = diag(p) - p p^T
the Hessian needs of a pair of fields one number per node, f^T A f', and of own terms products of their values:

    n m m'  for fields with m, m' numbers,     n m C q  for a field and q own terms,     n C^2 q^2  for own terms

instead of n C K^2. Whatever has a factor C or q on top of n is computed in chunks of nodes: memory is bounded by `CHUNK`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

CHUNK = 2**22  # numbers in one intermediate


class ColumnSet(Protocol):
    """What a convex fit needs of its columns."""

    def unit(self, floor: float) -> tuple[ColumnSet, Tensor, Tensor]:
        """Columns of unit size, the sizes (K,), and which are above ``floor`` (K,); softmax sees contrasts only."""

    def apply(self, theta: Tensor) -> Tensor:
        """X theta, (n, C)."""

    def transpose(self, residual: Tensor) -> Tensor:
        """sum_n X_n^T r_n, (K,), for r (n, C)."""

    def curvature(self, probs: Tensor) -> Tensor:
        """sum_n X_n^T (diag(p_n) - p_n p_n^T) X_n, (K, K)."""

    def leverage(self, inverse: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """X_n M X_n^T, (r, C, C) for slices of r nodes, for M (K, K)."""

    def levered(self, inverse: Tensor, x: Tensor) -> Tensor:
        """X_n M X_n^T x_n, (n, C), for M (K, K) and x (n, C), without writing the matrices down."""


def _sizes(size: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    alive = size > floor
    return torch.where(alive, size, torch.ones_like(size)), alive


def contrast(x: Tensor) -> Tensor:
    """x (n, C, ...) without what is common to all classes, which softmax does not see."""
    return x - x.mean(1, keepdim=True)


@dataclass(frozen=True, eq=False)
class DenseColumns:
    terms: Tensor  # (n, C, K)

    @cached_property
    def flat(self) -> Tensor:  # (n C, K)
        return self.terms.reshape(-1, self.terms.shape[2])

    def unit(self, floor: float) -> tuple[DenseColumns, Tensor, Tensor]:
        centred = contrast(self.terms)
        size, alive = _sizes(centred.square().mean((0, 1)).sqrt(), floor)
        return DenseColumns(centred / size), size, alive

    def apply(self, theta: Tensor) -> Tensor:
        return (self.flat @ theta).view(self.terms.shape[:2])

    def transpose(self, residual: Tensor) -> Tensor:
        return residual.reshape(-1) @ self.flat

    def curvature(self, probs: Tensor) -> Tensor:
        weighted = self.flat * probs.reshape(-1, 1)
        mean = weighted.view(self.terms.shape).sum(1)  # (n, K)
        curvature: Tensor = weighted.T @ self.flat - mean.T @ mean
        return curvature

    def leverage(self, inverse: Tensor) -> Iterator[tuple[slice, Tensor]]:
        for part in _slices(len(self.terms), self.terms[0].numel()):
            x = self.terms[part]
            yield part, (x @ inverse) @ x.mT

    def levered(self, inverse: Tensor, x: Tensor) -> Tensor:
        seen = torch.einsum("nck,nc->nk", self.terms, x) @ inverse
        return torch.einsum("nck,nk->nc", self.terms, seen)


@dataclass(frozen=True, eq=False)
class StructuredColumns:
    fields: Sequence[Tensor]  # J of (n, C)
    rows: Sequence[Tensor]  # J of (n, m_j)
    own: Tensor  # (n, C, q), q may be 0

    @property
    def classes(self) -> int:
        return self.own.shape[1]

    @cached_property
    def places(self) -> list[slice]:
        """Where the parameters of each field stand, and those of the own terms, class by class."""
        widths = [*(r.shape[1] for r in self.rows), self.own.shape[1] * self.own.shape[2]]
        ends = [0, *itertools.accumulate(widths)]
        return [slice(a, b) for a, b in itertools.pairwise(ends)]

    def part(self, nodes: slice | Tensor) -> StructuredColumns:
        return StructuredColumns([f[nodes] for f in self.fields], [r[nodes] for r in self.rows], self.own[nodes])

    def select(self, keep: Tensor) -> StructuredColumns:
        """Some columns (K,) bool only; an own term for all classes or for none."""
        kept = [keep[place] for place in self.places]
        pairs = [(f, r[:, k]) for f, r, k in zip(self.fields, self.rows, kept) if k.any()]
        own = self.own[:, :, kept[-1].view(self.own.shape[1:]).all(0)]
        return StructuredColumns([f for f, _ in pairs], [r for _, r in pairs], own)

    def unit(self, floor: float) -> tuple[StructuredColumns, Tensor, Tensor]:
        fields = [contrast(field) for field in self.fields]
        spread = [(f.square().mean(1, keepdim=True) * r.square()).mean(0).sqrt() for f, r in zip(fields, self.rows)]
        alone = ((1 - 1 / self.classes) / self.classes) ** 0.5  # the size of the contrast of one class's indicator
        spread.append((self.own.square().mean(0).sqrt() * alone).reshape(-1))
        size, alive = _sizes(torch.cat(spread), floor)
        rows = [r / size[place] * alive[place] for r, place in zip(self.rows, self.places)]
        last = self.places[-1]
        own = self.own / size[last].view(self.own.shape[1:]) * alive[last].view(self.own.shape[1:])
        return StructuredColumns(fields, rows, own), size, alive

    def apply(self, theta: Tensor) -> Tensor:
        z = (self.own * theta[self.places[-1]].view(self.own.shape[1:])).sum(-1)
        for field, row, place in zip(self.fields, self.rows, self.places):
            z = z + (row @ theta[place])[:, None] * field
        return z

    def apply_each(self, thetas: Tensor) -> Tensor:
        """X theta for several theta (M, K) at once."""  # (M, n, C)
        z = torch.einsum("nci,mci->mnc", self.own, thetas[:, self.places[-1]].view(-1, *self.own.shape[1:]))
        for field, row, place in zip(self.fields, self.rows, self.places):
            z = z + (thetas[:, place] @ row.T)[:, :, None] * field
        return z

    def transpose(self, residual: Tensor) -> Tensor:
        parts = [(field * residual).sum(1) @ row for field, row in zip(self.fields, self.rows)]
        return torch.cat([*parts, torch.einsum("nc,nci->ci", residual, self.own).reshape(-1)])

    def curvature(self, probs: Tensor) -> Tensor:
        width = self.places[-1].stop
        total = probs.new_zeros(width, width)
        for nodes in _slices(len(self.own), max(self.own[0].numel(), 4 * self.classes)):
            self.part(nodes)._add_curvature(probs[nodes], total)
        return total

    def _add_curvature(self, p: Tensor, total: Tensor) -> None:
        last, own = self.places[-1], self.own
        bent = [p * (f - (p * f).sum(1, keepdim=True)) for f in self.fields]  # A f
        for j, (row, place) in enumerate(zip(self.rows, self.places)):
            for k in range(j + 1):
                block = row.T @ ((bent[j] * self.fields[k]).sum(1, keepdim=True) * self.rows[k])
                total[place, self.places[k]] += block
                if k < j:
                    total[self.places[k], place] += block.T
            if own.shape[2]:
                block = row.T @ (bent[j][:, :, None] * own).flatten(1)
                total[place, last] += block
                total[last, place] += block.T
        if own.shape[2]:
            weighted = p[:, :, None] * own  # (n, C, q)
            total[last, last] -= weighted.flatten(1).T @ weighted.flatten(1)
            alone = weighted.permute(1, 2, 0) @ own.permute(1, 0, 2)  # (C, q, q)
            c = torch.arange(self.classes)
            total[last, last].view(*own.shape[1:], *own.shape[1:])[c, :, c, :] += alone

    def leverage(self, inverse: Tensor) -> Iterator[tuple[slice, Tensor]]:
        for nodes in _slices(len(self.own), self.classes * max(self.own[0].numel(), self.classes)):
            yield nodes, self.part(nodes)._leverage(inverse)

    def levered(self, inverse: Tensor, x: Tensor) -> Tensor:
        parts = [(field * x).sum(1, keepdim=True) * row for field, row in zip(self.fields, self.rows)]
        seen = torch.cat([*parts, (self.own * x[:, :, None]).flatten(1)], 1) @ inverse  # (n, K)
        total = (seen[:, self.places[-1]].view(self.own.shape) * self.own).sum(-1)
        for field, row, place in zip(self.fields, self.rows, self.places):
            total = total + (seen[:, place] * row).sum(1, keepdim=True) * field
        return total

    def _leverage(self, inverse: Tensor) -> Tensor:
        last, own = self.places[-1], self.own
        n, classes, q = own.shape
        across = own.permute(1, 0, 2) @ inverse[last, last].reshape(classes, q, classes * q)  # (C, n, C q)
        total = (across.view(classes, n, classes, q) * own).sum(-1).permute(1, 0, 2)  # (n, C, C)
        for j, (field, row) in enumerate(zip(self.fields, self.rows)):
            seen = row @ inverse[self.places[j]]  # (n, K)
            # half of its own square here and half by transposing below
            with_own = (seen[:, last].view(own.shape) * own).sum(-1)
            for k in range(j + 1):
                amount = (seen[:, self.places[k]] * self.rows[k]).sum(1, keepdim=True)
                with_own = with_own + (0.5 if k == j else 1.0) * amount * self.fields[k]
            pair = field[:, :, None] * with_own[:, None, :]
            total = total + pair + pair.mT
        return total


def _slices(count: int, each: int) -> Iterator[slice]:
    size = max(1, CHUNK // max(each, 1))
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))
