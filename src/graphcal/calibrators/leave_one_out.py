"""Leave-one-out validation of a fit that is linear in its parameters, from the one fit on all nodes.

For z_i = base_i + X_i theta, minimised NLL plus a ridge, dropping node i moves its own logits by one Newton step
(the approximate leave-one-out estimator; Rahnama Rad & Maleki 2020, arXiv:1801.10243):

    z_i without i  =  z_i + (I - S_i A_i / n)^-1 S_i r_i / n
    S_i = X_i H^-1 X_i^T,   H = 1/n sum X_i^T A_i X_i + diag(ridge),   A_i = diag(p_i) - p_i p_i^T,   r_i = p_i - q_i

It costs about one Newton iteration instead of n fits, has no random folds, and is exact for a quadratic loss.
"""

from __future__ import annotations

import torch
from torch import Tensor


def leave_one_out_logits(base: Tensor, terms: Tensor, target: Tensor, theta: Tensor, ridge: Tensor) -> Tensor:
    """Logits of every node from the fit without it.

    base (n, C), terms (n, C, K), target (n, C) the labels q as probabilities; theta (K,) the minimiser on all n nodes, with
    the penalty ridge (K,).
    """
    n, classes, k = terms.shape
    terms = terms - terms.mean(1, keepdim=True)
    flat = terms.reshape(-1, k)
    z = base + (flat @ theta).view(n, classes)
    p = z.softmax(-1)
    weighted = flat * p.reshape(-1, 1)
    mean = weighted.view(n, classes, k).sum(1)
    hessian = (weighted.T @ flat - mean.T @ mean) / n
    hessian.diagonal().add_(ridge + 1e-10 * hessian.diagonal().mean().clamp(min=1e-12))
    half = torch.linalg.solve_triangular(torch.linalg.cholesky(hessian), flat.T, upper=False).T.view(n, classes, k)
    leverage = half @ half.mT / n  # (n, C, C)
    curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    system = torch.eye(classes, dtype=z.dtype, device=z.device) - leverage @ curvature
    moved = torch.linalg.solve(system, leverage @ (p - target)[:, :, None])
    return z + moved.squeeze(-1)
