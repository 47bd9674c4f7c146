"""Dropout whose mask is a pure function of (seed, pass, layer, position).

    byte i of a layer = byte i % 8 of SplitMix64's word i // 8, the generator started at hash(seed, pass, layer)
    kept              = byte >= round(256 p)

A counter-based generator (Steele, Lea & Flood, OOPSLA 2014) has no state to share: the mask of a replica does not depend on which
other replicas train beside it, on chunks, on threads, on the device, or on which rows a pass happens to compute.

Departures from torch's dropout: bytes instead of floats, so p is rounded to 1/256 (0.5 is exact, 0.6 becomes 154/256); the
kept values are scaled by the rounded probability, so expectations are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

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
