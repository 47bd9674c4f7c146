"""Find the final layer of any model: the weights that the logits are linear in, one row for each class.

    logits = sum_k L_k(x_k W_k^T) + b      W_k (C, D_k) a weight, or one head's block of it; L_k the same for all classes

`confirm` takes the linear calls that the recorder saw last and proves the equation, by a look at the numbers or by one more pass
in which every x_k W_k^T is multiplied by a random matrix M (C, C): the logits must become (logits - b) M + b. A bias that L_k
spreads unevenly over the nodes (a bias before a propagation) is one more column of the weight.

`search` serves all other models. It puts other numbers in place of each parameter and looks at the change of the logits: for
W = u v^T it must be a number for each node times u. That takes several passes for each parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphcal.core import FinalLayer
from graphcal.observation.output_activation import Read
from graphcal.observation.recorder import Change, LinearCall

Repeat = Callable[[Mapping[int, Change]], Tensor]  # logits of one more pass with some linear calls changed
Passes = Callable[
    [Mapping[nn.Parameter, Tensor]], Tensor
]  # logits of one more pass with other numbers in some parameters


@dataclass(frozen=True, eq=False)
class Confirmed:
    """A proved final layer: calls that share a weight stand together."""

    final: FinalLayer
    groups: list[list[LinearCall]]
    rest: Tensor  # (N, C) the logits without any x_k W_k^T
    columns: Tensor  # (N, m) how much each node sees of the biases that are columns of the weight

    def representation(self, repeat: Repeat) -> Tensor:
        """h (N, D) with logits = h @ weight.T + bias: C columns of it in each pass, x_k in place of x_k W_k^T."""
        classes, parts = self.rest.shape[1], []
        for group in self.groups:
            heads, width = _heads(group[0], classes), group[0].weight.shape[1]
            for head in range(heads):
                for first in range(0, width, classes):
                    some = slice(first, min(first + classes, width))
                    changes = {call.number: _replaced(call, None) for calls in self.groups for call in calls}
                    changes |= {call.number: _replaced(call, some, head * classes) for call in group}
                    parts.append(heads**0.5 * (repeat(changes) - self.rest)[:, : some.stop - first])
        return torch.cat([*parts, self.columns], 1)


def confirm(read: Read, repeat: Repeat, ordered: Iterable[LinearCall] = ()) -> Confirmed | None:
    """The final layer of the calls that were seen last; None where they are not all of it. At most one more pass."""
    z, groups = read.logits, _by_weight(read.calls)
    classes, nothing = z.shape[1], z.new_empty(len(z), 0)
    if not groups or any(len(c.weight) % classes or (classes == 1 and len(c.weight) > 1) for c in read.calls):
        return None
    weight = torch.cat([w / len(ws) ** 0.5 for g in groups for ws in [_blocks(g[0], classes)] for w in ws], 1)
    rest = _without_products(read.calls, z)
    if rest is not None and is_constant(rest, z):
        return Confirmed(FinalLayer.from_weight(weight, rest.mean(0)), groups, rest, nothing)
    if classes == 1 and set(ordered) & set(read.calls):  # a median of one column passes the test below
        return None
    mixing = 0.5 * torch.linalg.qr(torch.randn(classes, classes, generator=torch.Generator().manual_seed(0)))[0].to(z)
    mixing = -mixing if classes == 1 and mixing > 0 else mixing
    mixed = repeat({call.number: _mixed(call, mixing) for call in read.calls})
    if mixed.shape != z.shape or not torch.isfinite(mixed).all():
        return None
    rest = torch.linalg.solve(torch.eye(classes).to(z) - mixing, mixed - z @ mixing, left=False)
    if is_constant(rest, z):
        return Confirmed(FinalLayer.from_weight(weight, rest.mean(0)), groups, rest, nothing)
    return _with_uneven_biases(groups, weight, rest, z)


def _with_uneven_biases(
    groups: list[list[LinearCall]], weight: Tensor, rest: Tensor, logits: Tensor
) -> Confirmed | None:
    """Explain what differs between the nodes by biases of the calls, the same share of it for all heads of a call."""
    biases = [g[0].bias.detach().reshape(-1, rest.shape[1]) for g in groups if g[0].bias is not None]  # (H, C)
    if not biases or len(biases) >= rest.shape[1]:
        return None
    directions = torch.stack([bias.mean(0) for bias in biases])  # (m, C)
    shares = rest @ torch.linalg.pinv(directions)  # (N, m)
    if int(torch.linalg.matrix_rank(directions)) < len(biases) or not close(shares @ directions, rest, logits):
        return None
    constant, columns = torch.zeros_like(rest[0]), []
    for bias, direction, share in zip(biases, directions, shares.T):
        if is_constant(share, share, 1e-3):
            constant = constant + share.mean() * direction
        else:
            weight = torch.cat([weight, bias.T], 1)
            columns.append((share / len(bias))[:, None].expand(-1, len(bias)))
    return Confirmed(FinalLayer.from_weight(weight, constant), groups, rest, torch.cat(columns, 1))


def _by_weight(calls: list[LinearCall]) -> list[list[LinearCall]]:
    groups: dict[tuple[int, ...], list[LinearCall]] = {}
    for call in calls:
        groups.setdefault((call.weight.data_ptr(), *call.weight.shape, *call.weight.stride()), []).append(call)
    return list(groups.values())


def _heads(call: LinearCall, classes: int) -> int:
    """How many heads share the output. Of the 1/H of averaged heads, 1/sqrt(H) goes to the weight and the other to h."""
    return len(call.weight) // classes


def _blocks(call: LinearCall, classes: int) -> Tensor:
    return call.weight.detach().reshape(-1, classes, call.weight.shape[1])  # (H, C, D)


def _without_products(calls: list[LinearCall], logits: Tensor) -> Tensor | None:
    """logits - sum_k x_k W_k^T, where every product has the shape of the logits."""
    rest = logits
    for call in calls:
        if call.input.dim() != 2 or (len(call.input), len(call.weight)) != logits.shape:
            return None
        rest = rest - (call.input @ call.weight.T).detach()
    return rest


def _mixed(call: LinearCall, mixing: Tensor) -> Change:
    """x W^T -> x W^T M, head by head; the bias stays."""

    def change(y: Tensor) -> Tensor:
        bias = 0 if call.bias is None else call.bias
        return ((y - bias).unflatten(-1, (-1, len(mixing))) @ mixing.to(y)).flatten(-2) + bias

    return change


def _replaced(call: LinearCall, columns: slice | None, start: int = 0) -> Change:
    """x W^T -> some columns of x, from column ``start`` of the result; zeros elsewhere. The bias stays."""

    def change(y: Tensor) -> Tensor:
        new = torch.zeros_like(y)
        if columns is not None:
            x = call.input[..., columns]
            new[..., start : start + x.shape[-1]] = x.to(y)
        return new if call.bias is None else new + call.bias

    return change


def is_constant(values: Tensor, like: Tensor, within: float = 1e-4) -> bool:
    """All rows are equal up to rounding."""
    return close(values, values[:1].expand_as(values), like, within)


def close(a: Tensor, b: Tensor, like: Tensor, within: float = 1e-4) -> bool:
    """Equal up to rounding, for values of the size of ``like``."""
    precision = 1.0 if a.dtype == torch.float32 else 1e-4
    return bool((a - b).abs().max() <= within * precision * like.abs().max().clamp(min=1e-6))


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
    """A block that the logits are linear in: its weight with the column scales, and what the nodes see of a vector."""

    block: Block
    weight: Tensor  # (C, D)
    seen: Tensor | None = None  # (N,)


def search(passes: Passes, parameters: Iterable[nn.Parameter], logits: Tensor, seed: int = 0) -> FinalLayer | str:
    """The final layer by changed parameters, or why there is none."""
    if not close(passes({}), logits, logits):
        return "its output differs from pass to pass"
    probe = Probe(passes, logits, torch.Generator().manual_seed(seed))
    parts: list[Part] = []
    for parameter in parameters:
        parts += next(filter(None, map(probe.parts_of, layouts(parameter, probe.classes))), [])
    if not any(part.seen is None for part in parts):
        return "its output is not linear in any of its weights"
    nothing = passes({part.block.parameter: torch.zeros_like(part.block.parameter) for part in parts})
    if not is_constant(nothing, logits):
        return "something that is not linear in a last layer is added to its output"
    halved = passes({part.block.parameter: 0.5 * part.block.parameter.detach() for part in parts})
    if not close(2 * halved - nothing, logits, logits):
        return "its output is linear in several layers one by one, but not together"
    weights, bias = [], nothing[0]
    for part in parts:
        if part.seen is not None and is_constant(part.seen, part.seen, 1e-3):
            bias = bias + part.seen.mean() * part.weight[:, 0]
        else:
            weights.append(part.weight / part.block.heads**0.5)
    return FinalLayer.from_weight(torch.cat(weights, 1), bias)


def layouts(parameter: nn.Parameter, classes: int) -> list[list[Block]]:
    """The ways to see (C, D) blocks in a parameter."""
    shape = parameter.shape
    counts: list[tuple[int, bool]] = []  # of blocks, stored (D, C)
    if parameter.dim() in (1, 2) and shape[0] % classes == 0 and 0 < shape[0] <= (1 if classes == 1 else shape[0]):
        counts.append((shape[0] // classes, False))
    if parameter.dim() == 2 and shape[1] == classes:
        counts.append((1, True))
    if parameter.dim() == 3:
        counts += [(shape[0], transposed) for transposed in (False, True) if shape[2 if transposed else 1] == classes]
    return [[Block(parameter, k, count, turned, classes) for k in range(count)] for count, turned in counts]


class Probe:
    """Tries blocks of parameters with changed numbers."""

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
            scales = self._column_scales(block, v, without)
            if scales is None:
                return None
            scale = scales
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
        return Part(block, scale[:, None] * weight, amount / v if width == 1 else None)

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


def along(change: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """change (N, C) = amount (N,) direction (C,) + rest."""
    amount = change @ direction / (direction @ direction)
    return amount, change - amount[:, None] * direction
