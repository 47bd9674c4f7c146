"""One pass of a model, watched: what its softmaxes were given, and the same pass again with its gates held still.

A graph attention layer is linear in its weight only while its attention stays as it is. So a first pass keeps the value of every
gate (softmax, sigmoid, and the exponential that PyG's softmax over neighbours is made of), and later passes, with other weights
in the last layer, put the same values in the same places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

# the names under which torch offers these; a method and a function of one name count as one
SOFTMAX, LOG_SOFTMAX, SIGMOID, EXP = "softmax", "log_softmax", "sigmoid", "exp"
GATES = (SOFTMAX, SIGMOID, EXP)
ENDINGS = (LOG_SOFTMAX, SOFTMAX, SIGMOID)


class WatchedPass(TorchFunctionMode):
    """Keeps, in order, the inputs and outputs of softmax, log_softmax, sigmoid and exp; or replays the outputs of another."""

    def __init__(self, replay: WatchedPass | None = None, gates: bool = True) -> None:
        super().__init__()
        self._kept = (*GATES, *ENDINGS) if gates else ENDINGS
        self.kinds: list[str] = []
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self._replay = replay

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kind = getattr(func, "__name__", "").lstrip("_").rstrip("_")
        result = func(*args, **(kwargs or {}))
        if kind not in self._kept or not isinstance(result, Tensor):
            return result
        place = len(self.kinds)
        if self._replay is not None and kind in GATES:
            held = self._replay.outputs[place]
            result = held if held.shape == result.shape else result
        self.kinds.append(kind)
        self.inputs.append(args[0] if args else (kwargs or {})["input"])
        self.outputs.append(result)
        return result

    def ending(self, output: Tensor) -> int | None:
        """The place of the last softmax, log_softmax or sigmoid whose result is the output; None if there is none."""
        for place in reversed(range(len(self.kinds))):
            result, given = self.outputs[place], self.inputs[place]
            alike = self.kinds[place] in ENDINGS and result.shape == output.shape == given.shape
            if alike and torch.equal(result.to(output.dtype), output):  # half precision is read in single
                return place
        return None


def watched(
    run: Callable[[], Tensor], replay: WatchedPass | None = None, gates: bool = True
) -> tuple[Tensor, WatchedPass]:
    """What ``run`` returns, and what was seen; without ``gates``, of what a model can end in alone."""
    with WatchedPass(replay, gates) as watch:
        output = run()
    return output, watch
