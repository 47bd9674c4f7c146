"""Read logits off a model's output: the output itself, or the input of its closing log_softmax, softmax or sigmoid.

The output must be the result of such a call in the recorded pass. Probabilities of another origin (a softmax written by hand)
give their logarithm, which softmax maps back to them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphcal.checks import normalisation_of
from graphcal.observation.recorder import LOG_SOFTMAX, SIGMOID, SOFTMAX, Activation, LinearCall, Recorder

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
        ]  # the replica axis of `graphcal.models`
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
