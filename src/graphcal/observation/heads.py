"""Find the final layer of any model, by trying: which parameters are the logits linear in, one row for each class?

    logits = sum_k h_k (s W_k)^T + b        W_k (C, D_k) a parameter, or one head's block of it; h_k the same for all classes

No list of layer classes: other numbers are put in place of a parameter, with the gates of the model held still (`watching`),
and the change of the logits is looked at. For W = u v^T, with random u (C,) and v (D,), the change must be (h . v) u^T, a number
for each node times u. That pass shows that every class has its own row and that all see the same h; a second one, with
u' v'^T - u v^T / 2, that the map is linear. Column scales s (a BatchNorm in evaluation mode) come from a pass with equal rows.
A vector of parameters that every node sees alike is a bias; one that nodes see to a different degree (a bias before a
propagation) is one more column of h. Finally all of it together must give the logits back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphcal.core import FinalLayer

Passes = Callable[[Mapping[nn.Parameter, Tensor]], Tensor]  # logits with other numbers in some parameters
MOST_PASSES = 200  # spent on h, C columns of it in each
MOST_NUMBERS = 50_000_000  # of h


@dataclass(frozen=True, eq=False)
class Block:
    """A (C, D) part of a parameter: all of it, or what belongs to one attention head, relation or the like."""

    parameter: nn.Parameter
    number: int
    count: int  # of blocks in this parameter
    transposed: bool  # stored (D, C)
    classes: int

    @property
    def heads(self) -> int:
        """How many share the output: the rows of a matrix belong to heads that are averaged; anything else is a sum."""
        return self.count if self.parameter.dim() == 2 else 1

    def read(self) -> Tensor:
        return self._blocks(self.parameter.detach())[self.number]  # (C, D)

    def filled(self, matrix: Tensor) -> Tensor:
        """The parameter with this block and zeros elsewhere."""
        full = torch.zeros_like(self.parameter.detach())
        self._blocks(full)[self.number].copy_(matrix)  # a view
        return full

    def _blocks(self, full: Tensor) -> Tensor:
        """(count, C, D), a view."""
        if full.dim() == 1:
            return full.view(self.count, self.classes, 1)
        if full.dim() == 2:
            full = full[None] if self.transposed else full.view(self.count, self.classes, full.shape[1])
        return full.transpose(1, 2) if self.transposed else full


@dataclass(frozen=True, eq=False)
class Part:
    """A block that the logits are linear in: its weight with the column scales, and what the nodes see of it."""

    block: Block
    weight: Tensor  # (C, D)
    scale: Tensor  # (C,)
    seen: Tensor | None = None  # (N,) of a vector


@dataclass(frozen=True, eq=False)
class Head:
    final: FinalLayer
    hidden: Tensor | None  # (N, D); None where it would take too many passes


def find_head(passes: Passes, parameters: Iterable[nn.Parameter], logits: Tensor, seed: int = 0) -> Head | str:
    """The final layer, or why there is none."""
    if not close(passes({}), logits, logits):
        return "it says something else in each pass"
    probe = Probe(passes, logits, torch.Generator().manual_seed(seed))
    parts: list[Part] = []
    for parameter in parameters:
        parts += next((found for found in map(probe.parts_of, layouts(parameter, probe.classes)) if found), [])
    if not any(part.seen is None for part in parts):
        return "its output is not linear in any of its weights"
    nothing = passes({part.block.parameter: torch.zeros_like(part.block.parameter) for part in parts})
    if not close(nothing, nothing[:1].expand_as(nothing), logits):
        return "something that is not linear in a last layer is added to its output"
    halved = passes({part.block.parameter: 0.5 * part.block.parameter.detach() for part in parts})
    if not close(2 * halved - nothing, logits, logits):
        return "its output is linear in several layers one by one, but not together"
    return probe.head(parts, nothing[0])


def layouts(parameter: nn.Parameter, classes: int) -> list[list[Block]]:
    """The ways to see (C, D) blocks in a parameter."""
    shape, found = parameter.shape, []
    if parameter.dim() in (1, 2) and shape[0] % classes == 0 and 0 < shape[0] <= (1 if classes == 1 else shape[0]):
        found.append((shape[0] // classes, False))
    if parameter.dim() == 2 and shape[1] == classes:
        found.append((1, True))
    if parameter.dim() == 3:
        found += [(shape[0], transposed) for transposed in (False, True) if shape[2 if transposed else 1] == classes]
    return [[Block(parameter, k, count, turned, classes) for k in range(count)] for count, turned in found]


def close(a: Tensor, b: Tensor, like: Tensor, within: float = 1e-4) -> bool:
    """Equal up to rounding, for values of the size of ``like``."""
    precision = 1.0 if a.dtype == torch.float32 else 1e-4
    return bool((a - b).abs().max() <= within * precision * like.abs().max().clamp(min=1e-6))


class Probe:
    def __init__(self, passes: Passes, logits: Tensor, generator: torch.Generator) -> None:
        self.passes, self.logits, self.generator = passes, logits, generator
        self.classes = logits.shape[1]

    def parts_of(self, blocks: list[Block]) -> list[Part]:
        """The blocks of one parameter as parts of the final layer; empty unless all of them are."""
        parameter = blocks[0].parameter
        without = self.passes({parameter: torch.zeros_like(parameter)})
        if not torch.isfinite(without).all():
            return []
        parts = []
        for block in blocks:
            part = self._part(block, without)
            if part is None:
                return []
            parts.append(part)
        return parts

    def _part(self, block: Block, without: Tensor) -> Part | None:
        weight = block.read()
        size = weight.abs().max().clamp(min=1e-3)
        width, u, v = weight.shape[1], self._random(self.classes), self._random(weight.shape[1]) * size
        change = self._change(block, torch.outer(u, v), without)  # (N, C)
        if not torch.isfinite(change).all() or float(change.abs().max()) < 1e-4 * float(self.logits.abs().max()):
            return None
        scale = torch.ones_like(u)
        amount, rest = along(change, u)
        if not close(rest, torch.zeros_like(rest), change, 1e-3):
            scale = self._column_scales(block, v, without)
            if scale is None:
                return None
            amount, rest = along(change, scale * u)
            if not close(rest, torch.zeros_like(rest), change, 1e-3):
                return None
        u2, v2 = self._random(self.classes), self._random(width) * size
        mixed = self._change(block, torch.outer(u2, v2) - 0.5 * torch.outer(u, v), without) + 0.5 * change
        _, rest = along(mixed, scale * u2)
        if self.classes == 1:  # everything is along one direction: the sum itself has to be right
            rest = mixed - self._change(block, torch.outer(u2, v2), without)
        if not close(rest, torch.zeros_like(rest), mixed, 1e-3):
            return None
        return Part(block, scale[:, None] * weight, scale, amount / v if width == 1 else None)

    def _column_scales(self, block: Block, v: Tensor, without: Tensor) -> Tensor | None:
        """s (C,), of geometric mean 1, from a pass with equal rows."""
        change = self._change(block, v.expand(self.classes, -1), without)
        strongest = change[:, change.abs().sum(0).argmax()]
        scale = (strongest @ change) / (strongest @ strongest)
        if not torch.isfinite(scale).all() or bool((scale == 0).any()):
            return None
        return scale / scale.abs().log().mean().exp()

    def _change(self, block: Block, matrix: Tensor, without: Tensor) -> Tensor:
        return self.passes({block.parameter: block.filled(matrix)}) - without

    def _random(self, size: int) -> Tensor:
        return (1 + torch.rand(size, generator=self.generator)).to(self.logits) * (
            2.0 * torch.randint(2, (size,), generator=self.generator).to(self.logits) - 1
        )

    def head(self, parts: list[Part], constant: Tensor) -> Head | str:
        """The parts side by side. Of the 1/H of averaged heads, 1/sqrt(H) goes to the weight and the other to h."""
        weights, columns, bias = [], [], constant
        affordable = self._affordable(parts)
        for part in parts:
            if part.seen is not None and close(part.seen, part.seen[:1].expand_as(part.seen), part.seen, 1e-3):
                bias = bias + part.seen.mean() * part.weight[:, 0]
                continue
            root = part.block.heads**0.5
            weights.append(part.weight / root)
            columns.append(part.seen[:, None] if part.seen is not None else self._hidden(part) if affordable else None)
            columns[-1] = None if columns[-1] is None else root * columns[-1]
        final = FinalLayer.from_weight(torch.cat(weights, 1), bias)
        if any(column is None for column in columns):
            return Head(final, None)
        hidden = torch.cat([column for column in columns if column is not None], 1)
        if not close(hidden @ final.weight.T + final.bias, self.logits, self.logits):
            return "the parts of its last layer do not add up to its output"
        return Head(final, hidden)

    def _affordable(self, parts: list[Part]) -> bool:
        width = sum(part.weight.shape[1] for part in parts)
        return width <= MOST_PASSES * self.classes and width * len(self.logits) <= MOST_NUMBERS

    def _hidden(self, part: Part) -> Tensor:
        """h (N, D): with unit vectors in the rows, each pass gives C columns."""
        block, width = part.block, part.weight.shape[1]
        without = self.passes({block.parameter: torch.zeros_like(block.parameter)})
        columns = []
        for first in range(0, width, self.classes):
            some = min(self.classes, width - first)
            unit = torch.zeros_like(part.weight)
            unit[torch.arange(some), first + torch.arange(some)] = 1.0
            columns.append(self._change(block, unit, without)[:, :some] / part.scale[:some])
        return torch.cat(columns, 1)


def along(change: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """change (N, C) = amount (N,) direction (C,) + rest."""
    amount = change @ direction / (direction @ direction)
    return amount, change - amount[:, None] * direction
