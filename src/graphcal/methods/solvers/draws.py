"""Random numbers of calibrators: drawn on the CPU from the generator that is passed in, equal on every device.

Dropout here is torch's, one mask per call. `graphcal.lab.engine.dropout` is another: counter-based, for models that train side
by side and must not share a state.
"""

from __future__ import annotations

import torch
from torch import Tensor


def dropout(values: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Inverted dropout: kept values are divided by the share that is kept."""
    if rate == 0.0:
        return values
    keep = torch.empty(values.shape, dtype=values.dtype).bernoulli_(1 - rate, generator=generator)
    return values * keep.to(values.device) / (1 - rate)


def uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator, like: Tensor) -> Tensor:
    """U(-bound, bound) in the precision and on the device of ``like``."""
    draw = torch.rand(shape, generator=generator, dtype=torch.double)
    return ((2 * draw - 1) * bound).to(like)
