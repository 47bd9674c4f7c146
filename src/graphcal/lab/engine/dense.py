"""Products of dense matrices with a leading replica axis: (R, n, D) (R, D, E) -> (R, n, E), without gradient.

torch multiplies float32 matrices through MKL. oneDNN, which torch brings along, is faster at tall products, a deep network's, on
some processors (benchmarks/products.py: by a fifth on an AMD Zen 4), and applies relu while the numbers are in cache. Small
products, and other types, devices and builds of torch, are `torch.bmm`. Which of the two depends on the shape of one replica,
so that a replica has the same digits alone and among others.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

LARGE = 2**27  # products of numbers for one replica from which oneDNN is ahead


def product(x: Tensor, weight: Tensor, relu: bool = False) -> Tensor:
    """x @ weight for every replica, or relu of it."""  # (R, n, E)
    if x.dtype == torch.float32 and x.device.type == "cpu" and x[0].numel() * weight.shape[2] >= LARGE and _onednn():
        multiply, after = _onednn(), "relu" if relu else "none"
        each = [multiply(a, w.T, None, after, [], "") for a, w in zip(x, weight)]
        return each[0][None] if len(each) == 1 else torch.stack(each)
    out = torch.bmm(x, weight)
    return out.relu_() if relu else out


@cache
def _onednn() -> Any:
    """oneDNN's product, where this build of torch has it."""
    there = torch.backends.mkldnn.is_available()
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None) if there else None
