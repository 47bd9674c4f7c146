"""Receptive fields: which rows a pass has to compute to know the outputs of some nodes.

    nodes[K] = the nodes asked for,  nodes[k] = nodes[k+1] and all they read,  hops[k] = A[nodes[k+1], nodes[k]]

A training step needs the logits of the training nodes only, early stopping those of the validation nodes only: with 20 labels a
class on a citation graph that is a small part of the rows and of the dropout numbers. A deep backbone reads all it can reach: its
last levels are cut, those before are one set of nodes (a third of Citeseer is in components without a label) with one operator.

The first product of a pass, A X W, has no randomness before it (unless the input is dropped out). Evaluating the state after a
step and training from it therefore share that product: the evaluation computes it for both, the training pass finds it in
`Shared`, by the weight and its version, so that a stale one cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphcal.engine.dropout import Dropout
from graphcal.engine.features import Features
from graphcal.engine.sparse import Sparse, bags


class Shared:
    """First products, each with the weight it was made from."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[Tensor, int, Tensor]] = {}

    def keep(self, weight: Tensor, kind: str, value: Tensor) -> None:
        self._known[id(weight), kind] = (weight, weight._version, value)

    def find(self, weight: Tensor, kind: str) -> Tensor | None:
        of, version, value = self._known.get((id(weight), kind), (None, -1, None))
        return value if of is weight and version == weight._version else None

    def forget(self) -> None:
        self._known.clear()


@dataclass(eq=False)
class Field:
    """What one pass sees: the input rows, and the hops from there to the nodes asked for."""

    nodes: Sequence[Tensor]  # K + 1 index tensors, input first
    hops: Sequence[Sparse]  # K operators, hops[k]: (len nodes[k+1], len nodes[k])
    x: Features  # rows nodes[0] of the input
    own: Sequence[Tensor | None]  # own[k]: where nodes[k+1] stand in nodes[k]; None when the two are the same
    asked: Tensor | None = None  # of the last level, the nodes asked for; None: all of it
    x1: Callable[[], Features] | None = None  # rows nodes[1] of the input, made when first asked for
    ax: Features | None = None  # rows nodes[1] of A X, where that is the cheaper way
    input_dropout: float = 0.0
    shared: Shared = field(default_factory=Shared)
    leads: bool = False  # a validation field: its first products are the ones that are shared

    def project(self, weight: Tensor, drop: Dropout | None = None, level: int = 0) -> Tensor:
        """X W for the rows nodes[level], level 0 or 1"""  # (R, n, H)
        x = self.x if level == 0 or self.x1 is None else self.x1()
        if drop is not None and self.input_dropout > 0:
            return x.dropped_times(weight, drop, self.input_dropout)
        return self._first(x, None, weight, f"x{level}")

    def propagate(self, weight: Tensor, drop: Dropout | None = None) -> Tensor:
        """A X W for the rows nodes[1]"""  # (R, n, H)
        if drop is not None and self.input_dropout > 0:
            return self.hops[0] @ self.x.dropped_times(weight, drop, self.input_dropout)
        if self.ax is not None:
            return self._first(self.ax, None, weight, "ax")
        return self._first(self.x, self.hops[0], weight, "ax")

    def keep_own(self, h: Tensor, level: int) -> Tensor:
        """The rows of nodes[level + 1], out of those of nodes[level]"""
        index = self.own[level]
        return h if index is None else h[:, index]

    def keep_asked(self, h: Tensor) -> Tensor:
        """The rows asked for, out of those of the last level"""
        return h if self.asked is None else h[:, self.asked]

    @property
    def answers(self) -> Tensor:
        """The nodes asked for."""
        return self.nodes[-1] if self.asked is None else self.nodes[-1][self.asked]

    def _first(self, x: Features, hop: Sparse | None, weight: Tensor, kind: str) -> Tensor:
        if not torch.is_grad_enabled():
            value = _product(x, hop, weight)
            if self.leads:
                self.shared.keep(weight, kind, value)
            return value
        known = self.shared.find(weight, kind)
        rows = x.shape[0] if hop is None else hop.shape[0]
        return _First.apply(weight, x, hop, None if known is None else known[:, :rows])


def _product(x: Features, hop: Sparse | None, weight: Tensor) -> Tensor:
    product = x.times(weight)
    return product if hop is None else bags(hop, product)


class _First(torch.autograd.Function):
    """A X W, whose value may be known already; the gradient in W is X^T A^T G."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Features, hop: Sparse | None, known: Tensor | None) -> Tensor:
        ctx.x, ctx.hop = x, hop
        return _product(x, hop, weight) if known is None else known.view_as(known)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        if ctx.hop is not None:
            grad = bags(ctx.hop.transpose, grad)
        return ctx.x.transpose_times(grad), None, None, None
