"""A noisy top-k gate (Shazeer et al. 2017, arXiv:1701.06538), the router of a sparse mixture of experts.

    g = softmax over the k largest of  q + noise * sd        q = x W_gate,  sd = softplus(x W_noise) + 0.01
    imbalance = cv^2(importance) + cv^2(load)                importance = column sums of g

load is the expected number of rows that choose an expert, smooth in the weights: the probability over the expert's own noise
that it is among the k largest.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus


def noisy_top_k(
    x: Tensor, gate: Tensor, noise: Tensor, top: int, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Gates (n, M) with ``top`` entries per row that are not zero, and the imbalance (). No generator: no noise."""
    clean = x @ gate  # (n, M)
    if generator is None:
        return _top_softmax(clean, top), clean.new_zeros(())
    spread = softplus(x @ noise) + 0.01
    draw = torch.randn(clean.shape, generator=generator, dtype=torch.double).to(clean)
    noisy = clean + draw * spread
    gates = _top_softmax(noisy, top)
    imbalance = squared_variation(gates.sum(0))
    if top < clean.shape[1]:
        imbalance = imbalance + squared_variation(_chance(clean, noisy, spread, top).sum(0))
    return gates, imbalance


def _top_softmax(scores: Tensor, top: int) -> Tensor:
    best, which = scores.topk(top, -1)
    return torch.zeros_like(scores).scatter(-1, which, best.softmax(-1))


def _chance(clean: Tensor, noisy: Tensor, spread: Tensor, top: int) -> Tensor:
    """Probability that each expert stays among the ``top`` when only its own noise is drawn anew."""  # (n, M)
    ranked = noisy.topk(top + 1, -1).values
    inside = noisy > ranked[:, top, None]
    to_beat = torch.where(inside, ranked[:, top, None], ranked[:, top - 1, None])
    chance: Tensor = torch.special.ndtr((clean - to_beat) / spread)
    return chance


def squared_variation(values: Tensor) -> Tensor:
    """Variance over squared mean."""
    variation: Tensor = values.var() / (values.mean().square() + 1e-10)
    return variation
