"""Layers with a leading replica axis: R independent networks that are computed together.

*Initial weights*: each replica is drawn from its own generator, by the initialisation of a name:

uniform          U(-1/sqrt(out), 1/sqrt(out))              Kipf's pygcn and CaGCN
glorot           U(+-sqrt(6 / (in + out))), zero bias      PyG, GAT, GCNII's and FAGCN's linear layers
linear           U(-1/sqrt(in), 1/sqrt(in))                torch.nn.Linear
xavier-normal    N(0, 1.414 sqrt(2 / (in + out)))          FAGCN; bias as in `linear`

Other packages add to these by an entry point in the group ``graphcal.inits`` that names an `Init`.

*Activations* whose rounding does not depend on where a number stands in its tensor.

torch's own ELU and tanh round the last few numbers of a tensor differently from the others, which would make a replica depend on
its place in the stack.

*Dropout* whose mask is a pure function of (seed, pass, layer, position).

    byte i of a layer = byte i % 8 of SplitMix64's word i // 8, the generator started at hash(seed, pass, layer)
    kept              = byte >= round(256 p)

A counter-based generator (Steele, Lea & Flood, OOPSLA 2014) has no state to share: the mask of a replica does not depend on which
other replicas train beside it, on chunks, on threads, on the device, or on which rows a pass happens to compute.

Departures from torch's dropout: bytes instead of floats, so p is rounded to 1/256 (0.5 is exact, 0.6 becomes 154/256); the
kept values are scaled by the rounded probability, so expectations are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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


_GOLDEN, _MIX1, _MIX2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BITS, _ONES, _SEVENS = (1 << 64) - 1, 0x0101010101010101, 0x7F7F7F7F7F7F7F7F


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def hashed(*numbers: int) -> int:
    """One 64-bit word from several integers (SplitMix64's finaliser, chained)."""
    word = 0
    for number in numbers:
        word = (word + number + _GOLDEN) & _BITS
        word = ((word ^ (word >> 30)) * _MIX1) & _BITS
        word = ((word ^ (word >> 27)) * _MIX2) & _BITS
        word ^= word >> 31
    return word


def hashed_key(*numbers: int) -> int:
    """`hashed` as a signed number, as torch's tensors hold it: where `random_words` starts."""
    return _signed(hashed(*numbers))


def random_words(keys: Tensor, positions: Tensor) -> Tensor:
    """Words number ``positions`` of SplitMix64 started at ``keys``: (R,), (...) -> (R, ...), as int64 (which wraps)."""
    word = keys.view(-1, *[1] * positions.dim()) + positions * _signed(_GOLDEN)
    word ^= (word >> 30) & ((1 << 34) - 1)  # >> keeps the sign, the mask takes it away
    word *= _signed(_MIX1)
    word ^= (word >> 27) & ((1 << 37) - 1)
    word *= _signed(_MIX2)
    word ^= (word >> 31) & ((1 << 33) - 1)
    return word


def kept_bytes(words: Tensor, threshold: int) -> Tensor:
    """Bytes of the words as 1 where byte >= threshold, else 0. Eight bytes at a time, without a slow compare."""
    low = words & _SEVENS
    if threshold <= 128:  # the high bit alone is enough, or low >= threshold
        return _high_bits(words | (low + (128 - threshold) * _ONES))
    return _high_bits(words & (low + (256 - threshold) * _ONES))  # the high bit is needed, and low >= threshold - 128


def _high_bits(words: Tensor) -> Tensor:
    """(..., w) -> (..., 8 w)"""
    return ((words >> 7) & _ONES).view(torch.uint8)


def kept_scale(p: float) -> float:
    """Factor of a kept value."""
    return 256 / (256 - round(256 * p))


@dataclass(frozen=True)
class Dropout:
    """The random numbers of one pass: a seed per replica, and the number of the pass (an epoch, or a sample).

    ``places`` keeps the positions of the rows seen before; give the same dict to every pass over the same rows.
    """

    seeds: Sequence[int]
    number: int
    places: dict[Any, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def keys(self, layer: int, device: torch.device) -> Tensor:
        keys = [hashed_key(seed, self.number, layer) for seed in self.seeds]
        return torch.tensor(keys, dtype=torch.int64, device=device)  # (R,)

    def kept(self, nodes: Tensor, width: int, p: float, layer: int) -> Tensor:
        """0 where a value is dropped, 1 where it is kept."""  # (R, len(nodes), width)
        threshold, words = round(256 * p), -(-width // 8)
        where = (id(nodes), words)
        if where not in self.places:
            self.places[where] = nodes[:, None] * words + torch.arange(words, device=nodes.device)  # (n, words)
        numbers = random_words(self.keys(layer, nodes.device), self.places[where])
        return kept_bytes(numbers, threshold)[..., :width].float()

    def mask(self, nodes: Tensor, width: int, p: float, layer: int) -> Tensor:
        """0 where a value is dropped, 1/(1-p) where it is kept."""  # (R, len(nodes), width)
        return self.kept(nodes, width, p, layer).mul_(kept_scale(p))

    def __call__(self, values: Tensor, nodes: Tensor, p: float, layer: int) -> Tensor:
        """Dropout of (R, len(nodes), width) values."""
        return values if p == 0 else values * self.mask(nodes, values.shape[-1], p, layer)


class _ReluDropout(torch.autograd.Function):
    """relu(z + b) * mask in one node: where the result is positive, the gradient passes times the scale."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, bias: Tensor | None, mask: Tensor, scale: float) -> Tensor:
        h = (z.relu() if bias is None else (z + bias).relu_()).mul_(mask)
        ctx.save_for_backward(h)
        ctx.scale, ctx.biased = scale, bias is not None
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        (h,) = ctx.saved_tensors
        back = torch.ops.aten.threshold_backward(grad, h, 0).mul_(ctx.scale)
        return back, back.sum(1, keepdim=True) if ctx.biased else None, None, None


def relu_dropout(z: Tensor, bias: Tensor | None, drop: Dropout | None, nodes: Tensor, p: float, layer: int) -> Tensor:
    """dropout(relu(z + bias)): (R, n, H)"""
    if drop is None or p == 0:
        return z.relu() if bias is None else (z + bias).relu_()
    mask = drop.mask(nodes, z.shape[-1], p, layer)
    h: Tensor = _ReluDropout.apply(z, bias, mask, kept_scale(p))  # type: ignore[no-untyped-call]
    return h
