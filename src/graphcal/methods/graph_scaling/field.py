"""Shift the logits by residuals that communities share, on the graph of the fit (``field=True``).

For the event "class k": p_i is its probability for node i from the fit without i's label, r_i = 1 or 0 minus p_i the residual,
v_i = p_i (1 - p_i) its variance, g_l(i) the community of i at resolution l, tau_l^2 the weight of that resolution, c a candidate
for the strength of all of them, and C the covariance of the residuals (`graphcal.residuals`). The shift u is the prediction of a
residual from the residuals of labelled nodes in the same communities (simple kriging):

    u(i)      c sum_l tau_l^2 sum over labelled j in g_l(i) of v_j alpha_j,  alpha = C^-1 r, averaged over c with its weight
    u(j) without j   (r_j - alpha_j / (C^-1)_jj) / v_j for a labelled node j, the weights without it likewise

lambda u_k is added to the logits, with the lambda of least leave-one-out NLL.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphcal.residuals import SMALLEST, covariances, evenly, node_groups, shared

if TYPE_CHECKING:
    from torch_geometric.data import Data

LAMBDAS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)


def kriged(residual: Tensor, v: Tensor, together: Tensor) -> tuple[Tensor, Tensor]:
    """beta (n,), whose sums over groups are u, and u (n,) of every labelled node without its label, for one class."""
    betas, left_out, weights, drops = [], [], [], []
    for c, factor, alpha, weight_of_c in covariances(residual, v, together):
        precision = torch.cholesky_inverse(factor).diagonal()
        betas.append(c * v * alpha)
        left_out.append((residual - alpha / precision) / v)
        weights.append(weight_of_c)
        drops.append(
            0.5 * (precision / (2 * math.pi)).log() - 0.5 * alpha.square() / precision
        )  # log density of r_j given the rest
    weight = torch.stack(weights)
    without = (weight[:, None] - torch.stack(drops)).softmax(0)
    return weight.softmax(0) @ torch.stack(betas), (without * torch.stack(left_out)).sum(0)


def residual_field(
    graph: Data, pred: Tensor, nodes: Tensor, log_probs: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, float]:
    """lambda u (N, C), the same (C, n) of the labelled ``nodes`` without their labels, and lambda.

    ``log_probs`` (C, n) are leave-one-out. At most 1,000 nodes, evenly drawn, carry the field.
    """
    some = evenly(len(y))
    groups, tau = node_groups(graph, pred)
    p = log_probs[:, some].exp().clamp(SMALLEST, 1 - SMALLEST)
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
        field += t * sums[group.long()]
    inside = torch.zeros_like(log_probs)
    inside[:, some] = left_out
    return best * field, best * inside, best
