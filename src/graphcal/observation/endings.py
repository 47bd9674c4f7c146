"""What a model ends in: logits are the output itself, or what its last log_softmax, softmax or sigmoid was given.

An ending is proved, not guessed: the output must *be* the result of such a call in the watched pass. Where it only looks like
probabilities (a softmax written by hand), their logarithm serves, which any softmax maps back to them.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from graphcal.checks import normalisation_of
from graphcal.core import FinalLayer
from graphcal.observation.heads import Head
from graphcal.observation.seen_models import two_columns
from graphcal.observation.watching import LOG_SOFTMAX, SIGMOID, SOFTMAX, WatchedPass

ROUNDING, HALF_ROUNDING = 1e-4, 2e-2  # of the sum of probabilities, in single and in half precision


def logits_of(output: Tensor, watch: WatchedPass, name: str) -> tuple[Tensor, int | None]:
    """Logits (N, C), C = 1 for one logit, and the place of the closing softmax among the watched calls."""
    if output.dim() not in (1, 2) or not output.is_floating_point():
        raise ValueError(
            f"{name} returned {tuple(output.shape)} of {output.dtype}; logits are (N, C), or (N,) for two classes"
        )
    place = watch.ending(output)
    columns = output[:, None] if output.dim() == 1 else output
    if not len(columns) or not torch.isfinite(columns).all():
        return columns, None  # refused by the checks of Outputs
    in_half = place is not None and watch.outputs[place].element_size() < 4
    kind = _kind(columns, HALF_ROUNDING if in_half else ROUNDING)
    if place is not None and watch.kinds[place] == kind:
        given = watch.inputs[place]
        return given[:, None] if given.dim() == 1 else given, place
    if kind == SOFTMAX:
        return columns.clamp(min=torch.finfo(columns.dtype).tiny).log(), None
    if kind == SIGMOID:
        warnings.warn(
            f"all of {name}'s outputs, one for each node, are in 0..1: taken as probabilities of class 1", stacklevel=4
        )
        return torch.logit(columns, eps=1e-6), None
    return columns, None  # logits, or log-probabilities, which are logits as well


def _kind(output: Tensor, rounding: float) -> str | None:
    """The ending that values like these can only come from."""
    if output.shape[1] == 1:
        return SIGMOID if bool(((output >= 0) & (output <= 1)).all()) else None
    return {"probabilities": SOFTMAX, "log-probabilities": LOG_SOFTMAX, None: None}[normalisation_of(output, rounding)]


def two_classes(logit: Tensor, head: Head | None) -> tuple[Tensor, Head | None]:
    """One logit z (N, 1) as two, (0, z): softmax gives 1 - sigmoid(z) and sigmoid(z). The weight gets a row of zeros likewise."""
    if head is not None:
        weight, bias = head.final.weight, head.final.bias
        final = FinalLayer(torch.cat([torch.zeros_like(weight), weight]), torch.cat([torch.zeros_like(bias), bias]))
        head = Head(final, head.hidden)
    return two_columns(logit), head
