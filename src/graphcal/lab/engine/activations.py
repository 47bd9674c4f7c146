"""Activations whose rounding does not depend on where a number stands in its tensor.

torch's own ELU and tanh round the last few numbers of a tensor differently from the others, which would make a replica depend on
its place in the stack.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha (exp(x) - 1) below."""
    out: Tensor = _Elu.apply(x, alpha)  # type: ignore[no-untyped-call]
    return out


def tanh(x: Tensor) -> Tensor:
    """1 - 2 / (exp(2x) + 1)"""
    return 1 - 2 / ((2 * x).clamp(max=40).exp() + 1)


class _Elu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: float) -> Tensor:
        below = x.clamp(max=0).exp_()  # exp(min(x, 0))
        ctx.save_for_backward(x, below)
        ctx.alpha = alpha
        return x.clamp(min=0).add_(below, alpha=alpha).sub_(alpha)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, below = ctx.saved_tensors
        if ctx.alpha == 1:
            return grad * below, None
        return grad * torch.where(x > 0, torch.ones_like(x), ctx.alpha * below), None
