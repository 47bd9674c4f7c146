"""Parameters with a leading replica axis, each replica drawn from its own generator.

uniform          U(-1/sqrt(out), 1/sqrt(out))              Kipf's pygcn and CaGCN
glorot           U(+-sqrt(6 / (in + out))), zero bias      PyG, GAT, GCNII's and FAGCN's linear layers
linear           U(-1/sqrt(in), 1/sqrt(in))                torch.nn.Linear
negative-normal  N(-1/sqrt(out), 1/sqrt(out))              the slip in SCAR's code: mean and deviation of a normal law where
                                                           the bounds of a uniform one were meant
xavier-normal    N(0, 1.414 sqrt(2 / (in + out)))          FAGCN, CaGCN's GAT; bias as in `linear`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

Draw = Callable[[tuple[int, ...], int, int, torch.Generator], Tensor]  # shape, in, out, generator


def _uniform(bound: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return (torch.rand(shape, generator=generator) * 2 - 1) * bound


INITS: dict[str, tuple[Draw, Draw]] = {  # name -> (weight, bias)
    "uniform": (
        lambda shape, i, o, g: _uniform(1 / sqrt(o), shape, g),
        lambda shape, i, o, g: _uniform(1 / sqrt(o), shape, g),
    ),
    "glorot": (
        lambda shape, i, o, g: _uniform(sqrt(6 / (i + o)), shape, g),
        lambda shape, i, o, g: torch.zeros(shape),
    ),
    "linear": (
        lambda shape, i, o, g: _uniform(1 / sqrt(i), shape, g),
        lambda shape, i, o, g: _uniform(1 / sqrt(i), shape, g),
    ),
    "negative-normal": (
        lambda shape, i, o, g: (torch.randn(shape, generator=g) - 1) / sqrt(o),
        lambda shape, i, o, g: (torch.randn(shape, generator=g) - 1) / sqrt(o),
    ),
    "xavier-normal": (
        lambda shape, i, o, g: torch.randn(shape, generator=g) * 1.414 * sqrt(2 / (i + o)),
        lambda shape, i, o, g: _uniform(1 / sqrt(i), shape, g),
    ),
}


def drawn(
    shape: tuple[int, ...],
    inputs: int,
    outputs: int,
    generators: Sequence[torch.Generator],
    init: str,
    bias: bool = False,
) -> nn.Parameter:
    """A parameter (R, *shape), replica r drawn from generator r by the law ``init``."""
    if init not in INITS:
        raise ValueError(f"init={init!r} is not an initialisation; choose among {', '.join(INITS)}")
    law = INITS[init][bias]
    return nn.Parameter(torch.stack([law(shape, inputs, outputs, generator) for generator in generators]))


class _Elu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: float) -> Tensor:
        below = x.clamp(max=0).exp_()  # exp(min(x, 0))
        ctx.save_for_backward(x, below)
        ctx.alpha = alpha
        return x.clamp(min=0).add_(below, alpha=alpha).sub_(alpha)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        x, below = ctx.saved_tensors
        if ctx.alpha == 1:
            return grad * below, None
        return grad * torch.where(x > 0, torch.ones_like(x), ctx.alpha * below), None


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha (exp(x) - 1) below. torch's own rounds the last few numbers of a tensor differently from the others,
    which would make a replica depend on its place in the stack."""
    return _Elu.apply(x, alpha)


def tanh(x: Tensor) -> Tensor:
    """1 - 2 / (exp(2x) + 1), for the same reason."""
    return 1 - 2 / ((2 * x).clamp(max=40).exp() + 1)


class _ByNode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, by_replica: Tensor) -> Tensor:
        ctx.heads = by_replica.shape[2]
        return by_replica.transpose(0, 1).flatten(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad.unflatten(1, (-1, ctx.heads)).transpose(0, 1).contiguous()


def by_node(by_replica: Tensor) -> Tensor:
    """(R, n, K) -> (n, R K). The gradient comes back with replicas outermost again, so that sums over nodes, further back, add in
    the same order for every stack."""
    return _ByNode.apply(by_replica)


class Linear(nn.Module):
    """R linear maps side by side: (R, n, in) -> (R, n, out)."""

    weight: nn.Parameter  # (R, in, out)
    bias: nn.Parameter  # (R, 1, out); None where there is none

    def __init__(
        self, inputs: int, outputs: int, generators: Sequence[torch.Generator], init: str, bias: bool = True
    ) -> None:
        super().__init__()
        self.weight = drawn((inputs, outputs), inputs, outputs, generators, init)
        law = drawn((1, outputs), inputs, outputs, generators, init, bias=True) if bias else None
        self.register_parameter("bias", law)

    def forward(self, h: Tensor) -> Tensor:
        return h @ self.weight if self.bias is None else h @ self.weight + self.bias


class Linears(nn.ModuleList):
    """A list of them."""

    def __iter__(self) -> Iterator[Linear]:
        return super().__iter__()  # type: ignore[return-value]
