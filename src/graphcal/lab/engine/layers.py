"""Layers with a leading replica axis: R networks side by side, of which no arithmetic mixes two; and their initial weights.

Each replica is drawn from its own generator, by the initialisation of a name:

uniform          U(-1/sqrt(out), 1/sqrt(out))              Kipf's pygcn and CaGCN
glorot           U(+-sqrt(6 / (in + out))), zero bias      PyG, GAT, GCNII's and FAGCN's linear layers
linear           U(-1/sqrt(in), 1/sqrt(in))                torch.nn.Linear
xavier-normal    N(0, 1.414 sqrt(2 / (in + out)))          FAGCN; bias as in `linear`

Other packages add to these by an entry point in the group ``graphcal.inits`` that names an `Init`.

Activations whose rounding does not depend on where a number stands in its tensor.

torch's own ELU and tanh round the last few numbers of a tensor differently from the others, which would make a replica depend on
its place in the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphcal.plugins import Names


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


Draw = Callable[[tuple[int, ...], int, int, torch.Generator], Tensor]  # shape, fan in, fan out, generator


@dataclass(frozen=True)
class Init:
    """Initialisation of the weight and the bias of a layer."""

    weight: Draw
    bias: Draw


def _uniform(bound: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return (torch.rand(shape, generator=generator) * 2 - 1) * bound


def _uniform_by_outputs(shape: tuple[int, ...], fan_in: int, fan_out: int, generator: torch.Generator) -> Tensor:
    return _uniform(1 / sqrt(fan_out), shape, generator)


def _uniform_by_inputs(shape: tuple[int, ...], fan_in: int, fan_out: int, generator: torch.Generator) -> Tensor:
    return _uniform(1 / sqrt(fan_in), shape, generator)


def _glorot(shape: tuple[int, ...], fan_in: int, fan_out: int, generator: torch.Generator) -> Tensor:
    return _uniform(sqrt(6 / (fan_in + fan_out)), shape, generator)


def _zeros(shape: tuple[int, ...], fan_in: int, fan_out: int, generator: torch.Generator) -> Tensor:
    return torch.zeros(shape)


def _xavier_normal(shape: tuple[int, ...], fan_in: int, fan_out: int, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator) * 1.414 * sqrt(2 / (fan_in + fan_out))


INITS: Names[Init] = Names(
    "init",
    {
        "uniform": Init(_uniform_by_outputs, _uniform_by_outputs),
        "glorot": Init(_glorot, _zeros),
        "linear": Init(_uniform_by_inputs, _uniform_by_inputs),
        "xavier-normal": Init(_xavier_normal, _uniform_by_inputs),
    },
    method="weight",
    signature="weight(shape, fan_in, fan_out, generator): it is not an initialisation",
)


def init_param(
    shape: tuple[int, ...],
    fan_in: int,
    fan_out: int,
    generators: Sequence[torch.Generator],
    init: str,
    bias: bool = False,
) -> nn.Parameter:
    """A parameter (R, *shape), replica r drawn from generator r by the initialisation with this name."""
    draw = INITS[init].bias if bias else INITS[init].weight
    return nn.Parameter(torch.stack([draw(shape, fan_in, fan_out, generator) for generator in generators]))


class Linear(nn.Module):
    """R linear maps side by side: (R, n, in) -> (R, n, out)."""

    weight: nn.Parameter  # (R, in, out)
    bias: nn.Parameter  # (R, 1, out); None where there is none

    def __init__(
        self, fan_in: int, fan_out: int, generators: Sequence[torch.Generator], init: str, bias: bool = True
    ) -> None:
        super().__init__()
        self.weight = init_param((fan_in, fan_out), fan_in, fan_out, generators, init)
        shift = init_param((1, fan_out), fan_in, fan_out, generators, init, bias=True) if bias else None
        self.register_parameter("bias", shift)

    if TYPE_CHECKING:

        def __call__(self, h: Tensor) -> Tensor: ...

    def forward(self, h: Tensor) -> Tensor:
        return h @ self.weight if self.bias is None else h @ self.weight + self.bias


class Linears(nn.ModuleList):
    """A list of them."""

    def __iter__(self) -> Iterator[Linear]:
        return super().__iter__()  # type: ignore[return-value]


def nodes_first(by_replica: Tensor) -> Tensor:
    """(R, n, K) -> (n, R K).

    The gradient has replicas outermost again, so that earlier sums over nodes add in the same order for every stack.
    """
    out: Tensor = _NodesFirst.apply(by_replica)  # type: ignore[no-untyped-call]
    return out


class _NodesFirst(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, by_replica: Tensor) -> Tensor:
        ctx.heads = by_replica.shape[2]
        return by_replica.transpose(0, 1).flatten(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.view(len(grad), -1, ctx.heads).transpose(0, 1).contiguous()
