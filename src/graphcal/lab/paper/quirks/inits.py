"""The initial weights of SCAR's official code: a slip.

    N(-1/sqrt(out), 1/sqrt(out))

It gives mean and deviation of a normal law where the bounds of a uniform one were meant. For reproduction only.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from graphcal.lab.engine.layers import Init


def _negative_normal(shape: tuple[int, ...], fan_in: int, fan_out: int, generator: torch.Generator) -> Tensor:
    return (torch.randn(shape, generator=generator) - 1) / sqrt(fan_out)


NEGATIVE_NORMAL = Init(weight=_negative_normal, bias=_negative_normal)
