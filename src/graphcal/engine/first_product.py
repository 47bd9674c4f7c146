"""The first product of a pass, X W or A X W, and the passes that share it.

There is no randomness before it (unless the input is dropped out). Evaluating the state after a step and training from it
therefore have that product in common: the evaluation computes it for both, the training pass finds it in the cache, by the
weight and its version, so that a stale one cannot be used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphcal.engine.features import Features
from graphcal.engine.sparse import Sparse, spmm


class FirstProductCache:
    """First products, each with the weight it was made from."""

    def __init__(self) -> None:
        self._products: dict[tuple[int, str], tuple[Tensor, int, Tensor]] = {}

    def put(self, weight: Tensor, kind: str, product: Tensor) -> None:
        self._products[id(weight), kind] = (weight, weight._version, product)

    def get(self, weight: Tensor, kind: str) -> Tensor | None:
        of, version, product = self._products.get((id(weight), kind), (None, -1, None))
        return product if of is weight and version == weight._version else None

    def clear(self) -> None:
        self._products.clear()


def first_product(x: Features, hop: Sparse | None, weight: Tensor) -> Tensor:
    """X W, or A X W with a hop, without gradient."""  # (R, n, H)
    product = x.times(weight)
    return product if hop is None else spmm(hop, product)


def differentiable_first_product(x: Features, hop: Sparse | None, weight: Tensor, known: Tensor | None) -> Tensor:
    """The same with a gradient in W; a value that is known already is not computed again."""
    product: Tensor = _FirstProduct.apply(weight, x, hop, known)  # type: ignore[no-untyped-call]
    return product


class _FirstProduct(torch.autograd.Function):
    """The gradient in W is X^T A^T G."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Features, hop: Sparse | None, known: Tensor | None) -> Tensor:
        ctx.x, ctx.hop = x, hop
        return first_product(x, hop, weight) if known is None else known.view_as(known)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        if ctx.hop is not None:
            grad = spmm(ctx.hop.transpose, grad)
        return ctx.x.transpose_times(grad), None, None, None
