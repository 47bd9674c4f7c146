"""Find the final layer of any model: the weights that the logits are linear in, one row for each class.

    logits = sum_k L_k(x_k W_k^T) + b      W_k (C, D_k) a weight, or one head's block of it; L_k the same for all classes

`confirm` takes the linear calls that the recorder saw last and proves the equation, by a look at the numbers or by one more pass
in which every x_k W_k^T is multiplied by a random matrix M (C, C): the logits must become (logits - b) M + b. A bias that L_k
spreads unevenly over the nodes (a bias before a propagation) is one more column of the weight.

`search` serves all other models. It multiplies the rows of each parameter by M, which must multiply its share of the logits by M.
That takes two passes for each parameter.

`ObservedModel` is the model on one graph, to be run as often as needed: recorded, with changes, weights on the edges, or dropout.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from graphcal.core import FinalLayer
from graphcal.observation.calls import evaluating
from graphcal.observation.recorder import Change, LinearCall, Read, Recorder, as_columns, read_logits, two_columns

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
    mixing = _mixing(z)
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


def _mixing(logits: Tensor) -> Tensor:
    """M (C, C), half a random rotation; -1/2 for one column."""
    classes = logits.shape[1]
    random = torch.randn(classes, classes, generator=torch.Generator().manual_seed(0))
    return 0.5 * (torch.linalg.qr(random)[0] if classes > 1 else -torch.ones(1, 1)).to(logits)


def _by_weight(calls: list[LinearCall]) -> list[list[LinearCall]]:
    groups: dict[tuple[int, ...], list[LinearCall]] = {}
    for call in calls:
        groups.setdefault((call.weight.data_ptr(), *call.weight.shape, *call.weight.stride()), []).append(call)
    return list(groups.values())


def _heads(call: LinearCall, classes: int) -> int:
    """Number of heads that share the output. Of the 1/H of averaged heads, 1/sqrt(H) goes to the weight and the other to h."""
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
        mixed: Tensor = (y - bias).unflatten(-1, (-1, len(mixing))) @ mixing.to(y)
        return mixed.flatten(-2) + bias

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
class Part:
    """A parameter that the logits are linear in, as (H, C, D) blocks with the scales of a closing BatchNorm."""

    parameter: nn.Parameter
    blocks: Tensor
    share: Tensor  # (N,) how much each node sees of a vector

    @property
    def is_even(self) -> bool:
        """A vector that all nodes see alike: a bias."""
        return self.blocks.shape[2] == 1 and is_constant(self.share, self.share, 1e-3)


def search(passes: Passes, parameters: Iterable[nn.Parameter], logits: Tensor) -> FinalLayer | str:
    """The final layer by changed parameters, or why there is none."""
    if not close(passes({}), logits, logits):
        return "its output differs from pass to pass"
    parts = [part for parameter in parameters if (part := _part(passes, parameter, logits)) is not None]
    if not any(part.blocks.shape[2] > 1 or part.parameter.dim() > 1 for part in parts):
        return "its output is not linear in any of its weights"
    nothing = passes({part.parameter: torch.zeros_like(part.parameter) for part in parts})
    if not is_constant(nothing, logits):
        return "something that is not linear in a last layer is added to its output"
    halved = passes({part.parameter: 0.5 * part.parameter.detach() for part in parts})
    if not close(2 * halved - nothing, logits, logits):
        return "its output is linear in several layers one by one, but not together"
    weights, bias = [], nothing[0]
    for part in parts:
        if part.is_even:
            bias = bias + part.share.mean() * part.blocks.mean(0)[:, 0]
        else:
            heads = len(part.blocks) if part.parameter.dim() == 2 else 1  # averaged; anything else is a sum
            weights += [block / heads**0.5 for block in part.blocks]
    return FinalLayer.from_weight(torch.cat(weights, 1), bias)


def _part(passes: Passes, parameter: nn.Parameter, logits: Tensor) -> Part | None:
    """A parameter whose rows, multiplied by M, multiply its share of the logits by M."""
    classes = logits.shape[1]
    for read in _layouts(parameter, classes):
        without = passes({parameter: torch.zeros_like(parameter)})
        share, mixing = logits - without, _mixing(logits)
        if not torch.isfinite(share).all() or share.abs().max() < 1e-4 * logits.abs().max():
            return None
        changed = parameter.detach().clone()
        read(changed).copy_(mixing.T.to(changed) @ read(parameter.detach()))
        scale = _scales(share, passes({parameter: changed}) - without, mixing)
        if scale is not None and (classes > 1 or _is_additive(passes, parameter, share)):
            blocks = scale[:, None] * read(parameter.detach())
            direction = blocks.mean(0)[:, 0]
            return Part(parameter, blocks, share @ direction / (direction @ direction))
    return None


def _layouts(parameter: nn.Parameter, classes: int) -> list[Callable[[Tensor], Tensor]]:
    """The ways to see (H, C, D) blocks in a parameter, as views."""
    shape, views = parameter.shape, []
    if parameter.dim() in (1, 2) and shape[0] % classes == 0 and (classes > 1 or shape[0] == 1):
        views.append(lambda p: p.view(-1, classes, 1 if p.dim() == 1 else p.shape[1]))
    if parameter.dim() == 2 and shape[1] == classes:
        views.append(lambda p: p.T[None])
    if parameter.dim() == 3 and shape[1] == classes:
        views.append(lambda p: p)
    if parameter.dim() == 3 and shape[2] == classes:
        views.append(lambda p: p.transpose(1, 2))
    return views


def _scales(share: Tensor, changed: Tensor, mixing: Tensor) -> Tensor | None:
    """s (C,), of geometric mean 1, with changed = share D^-1 M D for D = diag(s); None if there are none."""
    if close(changed, share @ mixing, share, 1e-3):
        return torch.ones_like(share[0])
    ratio = torch.linalg.lstsq(share.double(), changed.double()).solution / mixing  # s_j / s_i
    scale = ratio[0]
    if not torch.isfinite(ratio).all() or bool((scale == 0).any()):
        return None
    scaled = (share / scale.to(share)) @ mixing * scale.to(share)
    return (scale / scale.abs().log().mean().exp()).to(share) if close(changed, scaled, share, 1e-3) else None


def _is_additive(passes: Passes, parameter: nn.Parameter, share: Tensor) -> bool:
    """f(p + r) - f(r) = f(p) - f(0), which one column needs as a proof of its own."""
    other = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)).to(parameter)
    gap = passes({parameter: parameter.detach() + other}) - passes({parameter: other})
    return close(gap, share, share, 1e-3)


@dataclass(eq=False)
class ObservedModel:
    """The `graphcal.core.ModelHandle` of an observed model; ``run(edge_weight)`` calls it."""

    model: nn.Module
    run: Callable[[Tensor | None], Tensor]
    edge_index: Tensor | None = None
    ending: int | None = None  # number of the closing activation
    passes: int = 0  # so far

    def record(self, keep_gates: bool = False) -> tuple[Read, Recorder]:
        """One pass with what was seen in it."""
        with Recorder(keep_gates=keep_gates) as record:
            output = self.run(None)
        self.passes += 1
        read = read_logits(output, record, type(self.model).__name__)
        self.ending = read.ending
        return read, record

    def repeat(
        self,
        held: Recorder | None = None,
        changes: Mapping[int, Change] | None = None,
        parameters: Mapping[nn.Parameter, Tensor] | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Logits (N, C) of one more pass; `Recorder` explains ``held`` and ``changes``."""
        with Recorder(held, changes) as record, replaced(parameters or {}):
            output = self.run(edge_weight)
        self.passes += 1
        return as_columns(output if self.ending is None else record.activations[self.ending].input)

    def confirm(self, read: Read, record: Recorder) -> Confirmed | None:
        """The final layer, where it was seen in the recorded pass; at most one more pass."""
        return confirm(read, lambda changes: self.repeat(record, changes), record.ordered)

    def final_representation(self) -> Tensor | None:
        """h (N, D) with logits = h @ weight.T + bias, by 2 + D / C passes; None where the layer was not seen in a pass."""
        with torch.no_grad(), evaluating(self.model):
            read, record = self.record(keep_gates=True)
            layer = self.confirm(read, record)
            return None if layer is None else layer.representation(lambda changes: self.repeat(record, changes))

    def logits(self, edge_weight: Tensor | None = None, dropout: Generator | None = None) -> Tensor:
        """Logits (N, C) of one more pass, with weights (E,) on the edges or with dropout."""
        if edge_weight is not None:
            return self._weighted(edge_weight)
        if dropout is not None:
            return self._dropped(dropout)
        with torch.no_grad(), evaluating(self.model):
            return two_columns(self.repeat())

    @cached_property
    def reads_edge_weights(self) -> bool:
        """Return whether other weights on the edges give other logits."""
        edges = self.edge_index
        if edges is None:
            return False
        weights = torch.linspace(0.1, 1.0, edges.shape[1], device=edges.device)
        with torch.no_grad(), evaluating(self.model), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a model has no use for them
            return not torch.equal(self.repeat(edge_weight=weights), self.repeat())

    def _weighted(self, edge_weight: Tensor) -> Tensor:
        if not self.reads_edge_weights:
            raise ValueError(
                f"{type(self.model).__name__} cannot be run with weights on its edges: its forward does not read edge_weight"
            )
        with evaluating(self.model), frozen(self.model):
            return two_columns(self.repeat(edge_weight=edge_weight))

    def _dropped(self, generator: Generator) -> Tensor:
        """Set training mode except for layers with running means, and seed torch from ``generator``."""
        seed = int(torch.randint(2**62, (), generator=generator))
        with torch.no_grad(), torch.random.fork_rng(), evaluating(self.model):
            torch.manual_seed(seed)
            self.model.train()
            for module in self.model.modules():
                if isinstance(module, _NormBase):
                    module.eval()
            drawn = self.repeat()
            self.model.eval()
            if torch.equal(drawn, self.repeat()):
                raise ValueError(f"{type(self.model).__name__} has no dropout: it says the same in training mode")
        return two_columns(drawn)


@contextmanager
def replaced(values: Mapping[nn.Parameter, Tensor]) -> Iterator[None]:
    """Put other numbers in these parameters for a while."""
    before = {parameter: parameter.data for parameter in values}
    try:
        for parameter, value in values.items():
            parameter.data = value.to(parameter.data)
        yield
    finally:
        for parameter, data in before.items():
            parameter.data = data


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Let no parameter require a gradient for a while."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in learned:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)


def in_single_precision(model: nn.Module) -> nn.Module:
    """The model itself, or a copy in float32 where it computes in half precision."""
    halves = (torch.float16, torch.bfloat16)
    if any(tensor.dtype in halves for tensor in (*model.parameters(), *model.buffers())):
        return copy.deepcopy(model).float()
    return model
