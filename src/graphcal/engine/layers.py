"""Layers with a leading replica axis: R networks side by side, of which no arithmetic mixes two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphcal.engine.inits import init_param


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
    """(R, n, K) -> (n, R K). The gradient comes back with replicas outermost again, so that sums over nodes, further back, add in
    the same order for every stack."""
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
