"""The "ECE" of GETS and WATS: nodes binned by degree, not by confidence. Under its own name, so that tables compare.

Nodes are sorted by degree and cut into pieces of ceil(N/B), B = 10; then Σ_b n_b/N |acc_b - conf_b| over the pieces
(official code of Zhuang et al., ICLR 2025; Li et al., ICLR 2026, inherit it). It asks whether confidence is right on average
at each degree; a model that is over-confident on hard nodes and under-confident on easy ones of equal degree scores 0.
Departures: nodes of equal degree keep their order here; the official sort leaves it open.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphcal.metrics.bins import confidence
from graphcal.metrics.inputs import check, check_bins


def degree_binned_error(log_probs: Tensor, y: Tensor, degree: Tensor, bins: int = 10) -> float:
    """GETS/WATS "ECE": mean |accuracy - confidence| over equal-count bins of node degree. Not comparable with `ece`."""
    check(log_probs, y)
    check_bins(bins)
    if degree.shape != y.shape:
        raise ValueError(
            f"degree must have one entry for each row of log_probs, {tuple(y.shape)}, got {tuple(degree.shape)}"
        )
    conf, pred = confidence(log_probs)
    residual = ((pred == y).double() - conf).cpu()[degree.cpu().argsort(stable=True)]
    piece = torch.arange(len(y)) // math.ceil(len(y) / bins)
    return float(torch.bincount(piece, weights=residual).abs().sum()) / len(y)
