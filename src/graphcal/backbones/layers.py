"""Parameters with a leading replica axis, each replica drawn from its own generator.

    uniform          U(-1/sqrt(out), 1/sqrt(out))              Kipf's pygcn and CaGCN
    glorot           U(+-sqrt(6 / (in + out))), zero bias      PyG, GAT, GCNII's and FAGCN's linear layers
    linear           U(-1/sqrt(in), 1/sqrt(in))                torch.nn.Linear
    negative-normal  N(-1/sqrt(out), 1/sqrt(out))              the slip in SCAR's code: mean and deviation of a normal law where
                                                               the bounds of a uniform one were meant
    xavier-normal    N(0, 1.414 sqrt(2 / (in + out)))          FAGCN, CaGCN's GAT; bias as in `linear`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

import torch
from torch import Tensor, nn

from graphcal.core import FinalLayer

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
    shape: tuple[int, ...], inputs: int, outputs: int, generators: Sequence[torch.Generator], init: str, bias: bool = False
) -> nn.Parameter:
    """A parameter (R, *shape), replica r drawn from generator r by the law ``init``."""
    if init not in INITS:
        raise ValueError(f"init={init!r} is not an initialisation; choose among {', '.join(INITS)}")
    law = INITS[init][bias]
    return nn.Parameter(torch.stack([law(shape, inputs, outputs, generator) for generator in generators]))


class Linear(nn.Module):
    """R linear maps side by side: (R, n, in) -> (R, n, out)."""

    bias: nn.Parameter | None

    def __init__(
        self, inputs: int, outputs: int, generators: Sequence[torch.Generator], init: str, bias: bool = True
    ) -> None:
        super().__init__()
        self.weight = drawn((inputs, outputs), inputs, outputs, generators, init)  # (R, in, out)
        self.bias = drawn((1, outputs), inputs, outputs, generators, init, bias=True) if bias else None  # (R, 1, out)

    def forward(self, h: Tensor) -> Tensor:
        return h @ self.weight if self.bias is None else h @ self.weight + self.bias

    def final(self, replica: int) -> FinalLayer:
        """One replica's map as a final layer, logits = h @ weight.T + bias."""
        bias = None if self.bias is None else self.bias[replica]
        return FinalLayer.from_weight(self.weight[replica].T.contiguous(), bias)
