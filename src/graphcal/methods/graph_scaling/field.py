"""Residuals that communities share, as a shift of the logits on the graph of the fit (``field=True``).

For the event "class k", with p_i its probability without the label of i, v_i = p_i (1 - p_i) and residual r_i = y_i - p_i,

    r_i = v_i u_i + noise,  u = sum_l u_l[g_l(i)],  u_l ~ N(0, c tau_l^2)
    C         c sum_l tau_l^2 [g_l(i) = g_l(j)] v_i v_j off the diagonal, max(v_i, c v_i^2 sum_l tau_l^2 + .1 v_i) on it
    u(i)      c sum_l tau_l^2 sum over labelled j in g_l(i) of v_j alpha_j,  alpha = C^-1 r,
              averaged over c with weight exp(-ln^2 c / .98) N(r; 0, C)
    u(j) without j   (r_j - alpha_j / (C^-1)_jj) / v_j for a labelled node j, the weights without it likewise

Groups g_l are communities at four resolutions in four random hierarchies, and predicted classes. lambda u_k is added to the
logits, with the lambda of least leave-one-out NLL.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from graphcal.communities import communities

STRENGTHS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)  # c
TAU = (0.8, 0.5, 0.3, 0.2)  # tau^2 of communities, from fine to coarse
TAU_OF_CLASS, HIERARCHIES = 0.15, 4
LAMBDAS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
MOST_NODES = 1000  # labelled ones


def node_groups(edge_index: Tensor, pred: Tensor) -> tuple[Tensor, Tensor]:
    """Groups of every node (L, N) and their tau^2 (L,)."""
    parts = [
        torch.from_numpy(g) for seed in range(HIERARCHIES) for g in communities(edge_index.cpu(), len(pred), seed=seed)
    ]
    tau = [t / HIERARCHIES for _ in range(HIERARCHIES) for t in TAU]
    return torch.stack([*parts, pred.cpu()]), torch.tensor([*tau, TAU_OF_CLASS]).double()


def shared(groups: Tensor, tau: Tensor) -> Tensor:
    """sum_l tau_l^2 [g_l(i) = g_l(j)] (n, n) for groups (L, n)."""
    total = torch.zeros(groups.shape[1], groups.shape[1]).double()
    for group, t in zip(groups, tau):
        total += t * (group[:, None] == group)
    return total


def kriged(residual: Tensor, v: Tensor, together: Tensor) -> tuple[Tensor, Tensor]:
    """beta (n,), whose sums over groups are u, and u (n,) of every labelled node without its label, for one class."""
    outer, betas, left_out, weights, drops = v[:, None] * v, [], [], [], []
    for c in STRENGTHS:
        covariance = c * together * outer
        variances = torch.maximum(v, c * v.square() * together.diagonal() + 0.1 * v)
        covariance.diagonal().copy_(variances)
        factor = torch.linalg.cholesky(covariance)
        inverse = torch.cholesky_inverse(factor)
        alpha, precision = inverse @ residual, inverse.diagonal()
        betas.append(c * v * alpha)
        left_out.append((residual - alpha / precision) / v)
        weights.append(-(math.log(c) ** 2) / 0.98 - factor.diagonal().log().sum() - 0.5 * residual @ alpha)
        drops.append(
            0.5 * (precision / (2 * math.pi)).log() - 0.5 * alpha.square() / precision
        )  # log density of r_j given the rest
    weight = torch.stack(weights)
    without = (weight[:, None] - torch.stack(drops)).softmax(0)
    return weight.softmax(0) @ torch.stack(betas), (without * torch.stack(left_out)).sum(0)


def residual_field(
    edge_index: Tensor, pred: Tensor, nodes: Tensor, log_probs: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, float]:
    """lambda u (N, C), the same (C, n) of the labelled ``nodes`` without their labels, and lambda.

    ``log_probs`` (C, n) are leave-one-out. At most 1,000 nodes, evenly drawn, carry the field.
    """
    some = torch.from_numpy(np.unique(np.linspace(0, len(y) - 1, min(len(y), MOST_NODES)).round().astype(int)))
    groups, tau = node_groups(edge_index, pred)
    p = log_probs[:, some].exp().clamp(1e-6, 1 - 1e-6)
    hit = torch.nn.functional.one_hot(y[some], len(p)).T
    together = shared(groups[:, nodes[some].cpu()], tau)
    fitted = [kriged(hit[k] - p[k], p[k] * (1 - p[k]), together) for k in range(len(p))]
    left_out = torch.stack([u for _, u in fitted])  # (C, n)
    losses = [
        -float((log_probs[:, some] + s * left_out).log_softmax(0).gather(0, y[None, some]).mean()) for s in LAMBDAS
    ]
    best = LAMBDAS[losses.index(min(losses))]
    beta = torch.stack([b for b, _ in fitted], 1)  # (n, C)
    field = torch.zeros(len(pred), len(p)).double()
    for group, t in zip(groups, tau):
        sums = torch.zeros(int(group.max()) + 1, len(p)).double().index_add_(0, group[nodes[some]], beta)
        field += t * sums[group]
    inside = torch.zeros_like(log_probs)
    inside[:, some] = left_out
    return best * field, best * inside, best
