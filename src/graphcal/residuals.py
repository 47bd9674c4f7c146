"""Residuals that groups of nodes share: their covariance, and how strong they are.

For an event of probability p_i (the prediction is wrong, or the class is k), with v_i = p_i (1 - p_i) and y_i 0 or 1,

    y_i ~ p_i + v_i u_i,   u = sum_l u_l[g_l(i)],   u_l ~ N(0, c tau_l^2)
    C_c   c sum_l tau_l^2 [g_l(i) = g_l(j)] v_i v_j off the diagonal, max(v_i, c v_i^2 sum_l tau_l^2 + .1 v_i) on it
    weight of c   exp(-ln^2 c / .98) N(r; 0, C_c) for the residuals r of labelled nodes

Groups g_l are communities at four resolutions in four random hierarchies, and predicted classes; without edges, given columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from graphcal.communities import HIERARCHIES
from graphcal.graphs import neighbour_agreement, structure

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from graphcal.core import Outputs

STRENGTHS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)  # c
TAU = (0.8, 0.5, 0.3, 0.2)  # tau^2 of communities, from fine to coarse
TAU_OF_CLASS, TAU_OF_COLUMN = 0.15, 0.5
MOST_NODES = 1000  # labelled ones in C_c
SMALLEST = 1e-6  # probability of an event and of its opposite


def node_groups(graph: Data, pred: Tensor, columns: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
    """Groups of every node (L, N) and their tau^2 (L,); ``columns`` (N,) stand in for communities without edges."""
    if graph.get("edge_index") is not None:
        parts = structure(graph).hierarchies
        tau = [t / HIERARCHIES for _ in range(HIERARCHIES) for t in TAU]
    else:
        parts = torch.stack([pred.cpu().int(), *(column.cpu().int() for column in columns)])[1:]
        tau = [TAU_OF_COLUMN] * len(parts)
    return torch.cat([parts, pred.cpu().int()[None]]), torch.tensor([*tau, TAU_OF_CLASS]).double()


def node_facts(out: Outputs) -> Tensor:
    """Facts of every node (N, 3) that need no label: degree, agreement of neighbours' predictions, confidence of the model."""
    conf = out.logits.double().softmax(1).amax(1).cpu()
    if out.graph.get("edge_index") is None:
        return torch.stack([torch.zeros_like(conf), torch.zeros_like(conf), conf], 1)
    around = structure(out.graph)
    return torch.stack([around.degree.double().cpu(), neighbour_agreement(out.pred, around).cpu(), conf], 1)


def evenly(count: int) -> Tensor:
    """Numbers of at most 1,000 of so many labelled nodes, evenly spaced."""
    return torch.from_numpy(np.unique(np.linspace(0, count - 1, min(count, MOST_NODES)).round().astype(int)))


def shared(groups: Tensor, tau: Tensor) -> Tensor:
    """sum_l tau_l^2 [g_l(i) = g_l(j)] (n, n) for groups (L, n)."""
    total = torch.zeros(groups.shape[1], groups.shape[1]).double()
    for group, t in zip(groups, tau):
        total += t * (group[:, None] == group)
    return total


def covariances(residual: Tensor, v: Tensor, together: Tensor) -> Iterator[tuple[float, Tensor, Tensor, Tensor]]:
    """For every c: c, the Cholesky factor of C_c (n, n), alpha = C_c^-1 r (n,) and the logarithm of its weight."""
    outer = v[:, None] * v
    for c in STRENGTHS:
        covariance = c * together * outer
        covariance.diagonal().copy_(torch.maximum(v, c * v.square() * together.diagonal() + 0.1 * v))
        factor = torch.linalg.cholesky(covariance)
        alpha = torch.cholesky_solve(residual[:, None], factor)[:, 0]
        yield c, factor, alpha, -(math.log(c) ** 2) / 0.98 - factor.diagonal().log().sum() - 0.5 * residual @ alpha
