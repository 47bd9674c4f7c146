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
    z = base + terms @ theta
    p = z.softmax(-1)
    mean = torch.einsum("nc,nck->nk", p, terms)
    centred = terms - mean[:, None, :]
    hessian = torch.einsum("nck,ncl->kl", centred * p[:, :, None], centred) / n
    hessian += torch.diag(ridge + 1e-10 * hessian.diagonal().mean().clamp(min=1e-12))
    leverage = terms @ torch.linalg.solve(hessian, terms.reshape(-1, k).T).T.reshape(n, classes, k).mT / n  # (n, C, C)
    curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    residual = p - target
    moved = torch.linalg.solve(
        torch.eye(classes, dtype=z.dtype) - leverage @ curvature, (leverage @ residual[:, :, None])
    )
    return z + moved.squeeze(-1)
