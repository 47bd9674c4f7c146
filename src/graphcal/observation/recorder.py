"""Record the linear maps and activations of one forward pass, and read logits off its output.

    sources(t)   the linear calls x W^T that t depends on through no other linear call and no gate
    held         another pass, whose gates (softmax, sigmoid, exp) are put in place of this pass's own
    changes      functions that change the results of numbered linear calls

An attention layer is linear in its weight while its attention stays the same. So gates end a dependence, and a repeated pass
holds them.

*Logits* are the output itself, or the input of its closing log_softmax, softmax or sigmoid. The output must be the
result of such a call in the recorded pass. Probabilities of another origin (a softmax written by hand) give their logarithm,
which softmax maps back to them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from graphcal.checks import normalisation_of

# the names under which torch offers these; a method and a function of one name count as one
SOFTMAX, LOG_SOFTMAX, SIGMOID, EXP = "softmax", "log_softmax", "sigmoid", "exp"
GATES = (SOFTMAX, SIGMOID, EXP)
ENDINGS = (LOG_SOFTMAX, SOFTMAX, SIGMOID)
ORDERINGS = ("sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "quantile", "nanquantile", "mode", "msort")
PRODUCTS = ("linear", "matmul", "mm", "bmm", "addmm")
Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class LinearCall:
    """One call x W^T + b with a weight made of parameters alone."""

    number: int  # in the pass
    input: Tensor  # (n, D)
    weight: Tensor  # (K, D)
    bias: Tensor | None  # (K,)


@dataclass(frozen=True, eq=False)
class Activation:
    kind: str
    input: Tensor
    output: Tensor


class Recorder(TorchFunctionMode):
    """Record a pass; ``keep_gates`` keeps what a later pass needs to hold them."""

    def __init__(
        self, held: Recorder | None = None, changes: Mapping[int, Change] | None = None, keep_gates: bool = False
    ) -> None:
        super().__init__()
        self.calls: list[LinearCall] = []
        self.activations: list[Activation] = []  # of the kinds that a model can end in
        self.ordered: set[LinearCall] = set()  # calls whose results were sorted later on
        self._held, self._changes, self._keep_gates = held, changes or {}, keep_gates
        self._num_gates = 0
        self._gates: list[Tensor] = []
        weak: Any = WeakIdKeyDictionary
        self._sources = weak()  # tensor -> set of LinearCall
        self._weights = weak()  # tensors made of parameters alone

    def sources(self, tensor: Tensor) -> list[LinearCall]:
        """The last linear calls that a tensor depends on, in their order."""
        return sorted(self._sources.get(tensor, ()), key=lambda call: call.number)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").strip("_")
        call = self._linear_call(name, args, kwargs) if name in PRODUCTS else None
        result = func(*args, **kwargs)
        if call is not None and isinstance(result, Tensor):
            self.calls.append(call)
            result = self._changes[call.number](result) if call.number in self._changes else result
            self._sources[result] = {call}
        elif name in (*GATES, LOG_SOFTMAX) and isinstance(result, Tensor):
            result = self._activation(name, args[0] if args else kwargs["input"], result)
        else:
            self._follow(name, args, kwargs, result)
        return result

    def _linear_call(self, name: str, args: Any, kwargs: Any) -> LinearCall | None:
        names = {"linear": ("input", "weight", "bias"), "addmm": ("bias", "input", "weight")}.get(
            name, ("input", "weight")
        )
        given = dict(zip(names, args)) | kwargs
        x, weight, bias = (given.get(key) for key in ("input", "weight", "bias"))
        if set(given) - set(names) or not isinstance(weight, Tensor) or not self._is_weight(weight):
            return None
        weight = weight if name == "linear" else weight.mT if weight.dim() > 1 else weight
        if weight.dim() == 3 and len(weight) == 1:  # the replica axis of `graphcal.lab.models`
            weight = weight[0]
        plain = isinstance(x, Tensor) and x.layout == torch.strided and weight.dim() == 2
        if not plain or (isinstance(bias, Tensor) and bias.numel() != len(weight)):
            return None
        return LinearCall(len(self.calls), x, weight, None if bias is None else bias.flatten())

    def _activation(self, kind: str, given: Tensor, result: Tensor) -> Tensor:
        if kind in GATES:
            if self._held is not None and self._num_gates < len(self._held._gates):
                gate = self._held._gates[self._num_gates]
                result = gate if gate.shape == result.shape else result
            self._num_gates += 1
            self._sources.pop(result, None)  # written in place
            if self._keep_gates:
                self._gates.append(result)
        else:
            self._follow(kind, (given,), {}, result)
        if kind in ENDINGS:
            self.activations.append(Activation(kind, given, result))
        return result

    def _follow(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """Carry the sources of the arguments to the result."""
        tensors = list(_tensors((args, tuple(kwargs.values()))))
        sources = set().union(*(self._sources.get(tensor, ()) for tensor in tensors))
        if sources:
            if name in ORDERINGS:
                self.ordered |= sources
            for target in [args[0]] if name == "setitem" else _tensors(result):
                self._sources[target] = sources
                if any(target is tensor for tensor in tensors) and target._base is not None:  # written in place
                    self._sources[target._base] = sources | self._sources.get(target._base, set())
        elif tensors and all(self._is_weight(tensor) for tensor in tensors):
            for target in _tensors(result):
                self._weights[target] = True

    def _is_weight(self, tensor: Tensor) -> bool:
        return isinstance(tensor, nn.Parameter) or tensor in self._weights


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)


ROUNDING, HALF_ROUNDING = 1e-4, 2e-2  # of the sum of probabilities, in single and in half precision


@dataclass(frozen=True, eq=False)
class Read:
    """Logits (N, C) of a pass, C = 1 for one logit, and how they were read."""

    logits: Tensor
    ending: int | None  # number of the closing activation in the pass
    calls: list[LinearCall]  # the last linear maps that the logits depend on
    exact: bool = True  # False for logarithms of probabilities of unknown origin

    def hidden(self, num_nodes: int | None = None) -> Tensor | str:
        """The representation (N, D) that enters the last linear maps, side by side where they have several; or why not.

        Of a model that answers for the first of its ``num_nodes`` nodes alone, the rows of these.
        """
        if not self.calls:
            return "no linear map was seen in its forward pass"
        num_rows = self.logits.shape[0]  # not len(), which torch.export would fix
        inputs = list({id(call.input): call.input for call in self.calls}.values())  # a tensor may enter several maps
        rows = [
            x[0] if x.dim() == 3 and x.shape[0] == 1 else x for x in inputs
        ]  # the replica axis of `graphcal.lab.models`
        rows = [x for x in rows if x.dim() == 2 and x.shape[0] in (num_rows, num_nodes)]
        if not rows:
            return f"its last linear map reads {tuple(inputs[-1].shape)}, not a row for each node"
        rows = [x if x.shape[0] == num_rows else x[:num_rows] for x in rows]
        return torch.cat(rows, 1) if len(rows) > 1 else rows[0]


def read_logits(output: Tensor, record: Recorder, name: str) -> Read:
    """The logits of a pass, with a look at their values; a warning where probabilities have an unknown origin."""
    if output.dim() not in (1, 2) or not output.is_floating_point():
        raise ValueError(
            f"{name} returned {tuple(output.shape)} of {output.dtype}; logits are (N, C), or (N,) for two classes"
        )
    ending = _ending(output, record.activations)
    columns, plain = as_columns(output), _read(output, None, record)
    if not len(columns) or not torch.isfinite(columns).all():
        return plain  # refused by the checks of Outputs
    in_half = ending is not None and record.activations[ending].output.element_size() < 4
    kind = _kind(columns, HALF_ROUNDING if in_half else ROUNDING)
    if ending is not None and record.activations[ending].kind == kind:
        return _read(output, ending, record)
    if kind == SOFTMAX:
        logits = columns.clamp(min=torch.finfo(columns.dtype).tiny).log()
        return replace(plain, logits=logits, exact=False)
    if kind == SIGMOID:
        warnings.warn(
            f"all of {name}'s outputs, one for each node, are in 0..1: taken as probabilities of class 1", stacklevel=4
        )
        return replace(plain, logits=torch.logit(columns, eps=1e-6), exact=False)
    return plain  # logits, or log-probabilities, which are logits as well


def read_traced(output: Tensor, record: Recorder) -> Read:
    """The same for ``torch.export``, which cannot look at values: an activation counts if its result is the output."""
    numbers = [n for n, activation in enumerate(record.activations) if activation.output is output]
    return _read(output, numbers[-1] if numbers else None, record)


def _read(output: Tensor, ending: int | None, record: Recorder) -> Read:
    logits = output if ending is None else record.activations[ending].input
    calls = (
        record.sources(logits) or record.calls[-1:]
    )  # the last one, where functions could not be followed to the end
    return Read(as_columns(logits), ending, calls)


def _ending(output: Tensor, activations: list[Activation]) -> int | None:
    """The number of the last activation whose result is the output."""
    for number, activation in reversed(list(enumerate(activations))):
        alike = activation.output.shape == output.shape == activation.input.shape
        if alike and torch.equal(activation.output.to(output.dtype), output):  # half precision is read in single
            return number
    return None


def _kind(output: Tensor, rounding: float) -> str | None:
    """The activation that values like these can only come from."""
    if output.shape[1] == 1:
        return SIGMOID if bool(((output >= 0) & (output <= 1)).all()) else None
    return {"probabilities": SOFTMAX, "log-probabilities": LOG_SOFTMAX, None: None}[normalisation_of(output, rounding)]


def as_columns(logits: Tensor) -> Tensor:
    """(N,) as (N, 1)."""
    return logits[:, None] if logits.dim() == 1 else logits


def two_columns(logits: Tensor) -> Tensor:
    """One logit z as (0, z), for which softmax gives 1 - sigmoid(z) and sigmoid(z)."""
    return torch.cat([torch.zeros_like(logits), logits], 1) if logits.shape[1] == 1 else logits
