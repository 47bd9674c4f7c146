"""Record the linear maps and activations of one forward pass, or repeat a pass with some of them changed.

    sources(t)   the linear calls x W^T that t depends on through no other linear call and no gate
    held         another pass, whose gates (softmax, sigmoid, exp) are put in place of this pass's own
    changes      functions that change the results of numbered linear calls

An attention layer is linear in its weight while its attention stays the same. So gates end a dependence, and a repeated pass
holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

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
