"""Predictions with a known truth."""

from __future__ import annotations

import torch
from torch import Tensor


def binary(conf: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Two-class log-probabilities with these confidences (at least one half), and labels that make them right or wrong."""
    return torch.stack([conf, 1 - conf], 1).log(), (right == 0).long()


def draw(truth: Tensor, generator: torch.Generator) -> Tensor:
    return (torch.rand(len(truth), generator=generator, dtype=torch.float64) < truth).double()


def confidences(shape: str, N: int, generator: torch.Generator) -> Tensor:
    """Three shapes of confidence: spread evenly, crowded at 1, crowded at the low end."""
    u = torch.rand(N, generator=generator, dtype=torch.float64)
    return {"even": 0.5 + 0.5 * u, "high": 1 - 0.5 * u**3, "low": 0.5 + 0.45 * u**2}[shape]


def predictions(N: int = 500, C: int = 5, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Labels drawn from softmax(z), predictions softmax(scale · z): calibrated at scale 1."""
    g = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(N, C, generator=g, dtype=torch.float64)
    y = torch.multinomial(z.softmax(1), 1, generator=g)[:, 0]
    return (scale * z).log_softmax(1), y
