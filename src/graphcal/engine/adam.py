"""Full-batch Adam with early stopping, for calibrators whose loss is not convex.

All weights live in one flat vector, so a step is a handful of operations whatever the number of layers, and the best
state is one copy. Weight decay is coupled (L2 in the gradient), as in the papers' code.

Randomness over nodes (dropout, folds) is drawn in `in_order`: the order of the nodes' logits, not of their numbers. Renumbering
the graph then renumbers the calibrated result and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from graphcal.checks import check_mask
from graphcal.core import Outputs, fitting_nodes

Weights = dict[str, Tensor]


def in_order(logits: Tensor, mask: Tensor) -> Tensor:
    """Indices of the nodes in ``mask``, sorted by their logits."""
    nodes = mask.nonzero().flatten()
    columns = logits[nodes, :4].cpu().numpy()
    return nodes[torch.from_numpy(np.lexsort(columns.T)).to(nodes.device)]


def fitting_order(out: Outputs, on: Tensor) -> Tensor:
    """The checked fitting nodes, as indices in an order that does not depend on their numbers."""
    return in_order(out.logits, fitting_nodes(out, on))


def stopping_order(out: Outputs, stop: Tensor | None, fitted: Tensor) -> Tensor:
    """The nodes whose NLL decides when to stop: ``stop``, or the fitted nodes themselves."""
    if stop is None:
        return fitted
    check_mask(stop, out.num_nodes, "stop")
    if int(out.graph.y[stop].min()) < 0:
        raise ValueError(f"stop selects {int((out.graph.y[stop] < 0).sum())} nodes without a label (y = -1)")
    return in_order(out.logits, stop)


def training_nodes(out: Outputs) -> Tensor | None:
    """The training nodes, where the graph has any: they say stop to a network that would learn the fitted nodes by heart."""
    train = out.graph.get("train_mask")
    return train if train is not None and train.any() else None


def flat(weights: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([w.reshape(-1) for w in weights.values()])


def unflat(vector: Tensor, like: Mapping[str, Tensor]) -> Weights:
    parts = vector.split([w.numel() for w in like.values()])
    return {name: part.view(w.shape) for (name, w), part in zip(like.items(), parts)}


def descend(
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
    decay = flat({name: torch.full_like(w, decay_of.get(name, 0.0)) for name, w in start.items()})
    theta = flat(start).requires_grad_()
    first, second = torch.zeros_like(decay), torch.zeros_like(decay)
    best, best_value, best_epoch = theta.detach().clone(), float("inf"), 0
    for epoch in range(epochs + 1):
        value = loss(unflat(theta, start))
        with torch.no_grad():
            watched = float(value if watch is None else watch(unflat(theta, start)))
        if watched < best_value:
            best, best_value, best_epoch = theta.detach().clone(), watched, epoch
        if epoch == epochs or epoch - best_epoch >= patience or not np.isfinite(watched):
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
    return {name: w.clone() for name, w in unflat(best, start).items()}


def dropout(values: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Inverted dropout with a generator of its own."""
    if rate == 0.0:
        return values
    keep = torch.empty(values.shape, dtype=values.dtype).bernoulli_(1 - rate, generator=generator)
    return values * keep.to(values.device) / (1 - rate)


def uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator, like: Tensor) -> Tensor:
    """U(-bound, bound) in the precision and on the device of ``like``."""
    draw = torch.rand(shape, generator=generator, dtype=torch.double)
    return ((2 * draw - 1) * bound).to(like)
