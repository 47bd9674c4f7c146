"""Full-batch Adam (Kingma & Ba 2015, arXiv:1412.6980) with early stopping, for losses that are not convex.

All weights live in one flat vector, so a step is a handful of operations whatever the number of layers, and the best
state is one copy. Weight decay is coupled (L2 in the gradient), as in the code of the calibrators' papers.

*Random numbers* are drawn on the CPU from the generator that is passed in, equal on every device.

Dropout here is torch's, one mask per call. `graphcal.lab.engine.layers` is another: counter-based, for models that train side
by side and must not share a state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def ravel(weights: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([w.reshape(-1) for w in weights.values()])


def unravel(vector: Tensor, like: Mapping[str, Tensor]) -> Weights:
    parts = torch.split(vector, [w.numel() for w in like.values()])
    return {name: part.view(w.shape) for (name, w), part in zip(like.items(), parts)}


def adam(
    start: Weights,
    loss: Callable[[Weights], Tensor],
    watch: Callable[[Weights], Tensor] | None = None,
    *,
    lr: float,
    epochs: int,
    patience: int,
    weight_decay: float | Mapping[str, float] = 0.0,
) -> Weights:
    """The weights with the smallest watched loss on the way of Adam from ``start``; stops after ``patience`` epochs without one.

    Without ``watch`` the loss itself is watched (right where it is the same number: no dropout, no extra term, same nodes).
    """
    decay_of = weight_decay if isinstance(weight_decay, Mapping) else dict.fromkeys(start, weight_decay)
    decay = ravel({name: torch.full_like(w, decay_of.get(name, 0.0)) for name, w in start.items()})
    theta = ravel(start).requires_grad_()
    first, second = torch.zeros_like(decay), torch.zeros_like(decay)
    best, best_value, best_epoch = theta.detach().clone(), float("inf"), 0
    for epoch in range(epochs + 1):
        value = loss(unravel(theta, start))
        with torch.no_grad():
            watched = float(value if watch is None else watch(unravel(theta, start)))
        if watched < best_value:
            best, best_value, best_epoch = theta.detach().clone(), watched, epoch
        if epoch == epochs or epoch - best_epoch >= patience or not isfinite(watched):
            break
        (gradient,) = torch.autograd.grad(value, theta)
        if not torch.isfinite(gradient).all():
            break
        with torch.no_grad():
            gradient = gradient + decay * theta
            first.lerp_(gradient, 0.1)
            second.lerp_(gradient * gradient, 0.001)
            size = lr * (1 - 0.999 ** (epoch + 1)) ** 0.5 / (1 - 0.9 ** (epoch + 1))
            theta -= size * first / (second.sqrt() + 1e-8 * (1 - 0.999 ** (epoch + 1)) ** 0.5)
    return {name: w.clone() for name, w in unravel(best, start).items()}


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
