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


class Around:
    """The fit z = base + X theta in the neighbourhood of one theta: probabilities, gradient and Hessian of its mean NLL."""

    def __init__(self, base: Tensor, terms: Tensor, target: Tensor, theta: Tensor) -> None:
        """base (n, C), terms X (n, C, K), target (n, C) the labels q as probabilities, theta (K,)."""
        self.nodes, self.classes, self.columns = terms.shape
        self.theta, self.flat = theta, terms.reshape(-1, self.columns)
        self.z = base + (self.flat @ theta).view(self.nodes, self.classes)
        log_probs = self.z.log_softmax(-1)
        self.nll = -torch.dot(log_probs.view(-1), target.view(-1)) / self.nodes
        self.p = log_probs.exp()
        self.residual = self.p - target  # r
        weighted = self.flat * self.p.view(-1, 1)
        mean = weighted.view(self.nodes, self.classes, self.columns).sum(1)
        self.gradient = self.residual.view(-1) @ self.flat / self.nodes  # (K,)
        self.hessian = (weighted.T @ self.flat - mean.T @ mean) / self.nodes  # (K, K)

    def step(self, centre: Tensor, ridge: Tensor) -> Tensor:
        """Where Newton's method goes from here, with the penalty 1/2 sum ridge_k (theta_k - centre_k)^2."""  # (K,)
        return self.theta - torch.linalg.solve(self._ridged(ridge), self.gradient + ridge * (self.theta - centre))

    def without_own_label(self, ridge: Tensor) -> Tensor:
        """Logits of every node from the fit without it, if theta minimises the NLL with this ridge (K,)."""  # (n, C)
        shape = self.nodes, self.classes, self.columns
        solved = self.flat @ torch.linalg.inv(self._ridged(ridge) * self.nodes)
        leverage = solved.view(shape) @ self.flat.view(shape).mT  # (n, C, C) S / n
        moved = leverage @ self.residual[:, :, None]
        drift = leverage * self.p[:, None, :] - (leverage @ self.p[:, :, None]) * self.p[:, None, :]  # S A / n
        system = torch.eye(self.classes, dtype=self.z.dtype, device=self.z.device) - drift
        return self.z + torch.linalg.solve(system, moved).squeeze(-1)

    def _ridged(self, ridge: Tensor) -> Tensor:
        """The Hessian with the ridge, and a trace of one more: two equal columns must not make it singular."""
        hessian = self.hessian.clone()
        hessian.diagonal().add_(ridge + 1e-10 * self.hessian.diagonal().mean().clamp(min=1e-12))
        return hessian


def leave_one_out_logits(base: Tensor, terms: Tensor, target: Tensor, theta: Tensor, ridge: Tensor) -> Tensor:
    """Logits of every node from the fit without it: theta (K,) is the minimiser on all n nodes, with the penalty ridge (K,)."""
    contrast = terms - terms.mean(1, keepdim=True)  # softmax does not see what is common to all classes
    return Around(base, contrast, target, theta).without_own_label(ridge)
