"""Stacking: convex weights of several predictions of the same nodes, from predictions that did not see the node's label.

    maximise over the simplex   sum_n log sum_m w_m p_nm  +  sum_m prior_m log w_m        p_nm the probability m gave to the label

Concave; EM climbs it. The prior counts like observations that its member alone explains. `pooled` projects distributions onto
those that keep a prediction.
"""

from __future__ import annotations

import torch
from torch import Tensor


def stack_weights(log_likelihood: Tensor, prior: Tensor, rounds: int = 1000) -> Tensor:
    """Weights (M,) for log-probabilities of the labels (n, M), each member's without the node, and pseudo-observations (M,)."""
    likelihood = (log_likelihood - log_likelihood.amax(1, keepdim=True)).exp()
    weights = torch.full_like(prior, 1 / len(prior))
    for _ in range(rounds):
        share = likelihood * weights
        updated = (share / share.sum(1, keepdim=True)).sum(0) + prior
        updated = updated / updated.sum()
        if float((updated - weights).abs().max()) < 1e-7:
            break
        weights = updated
    return weights


def mixture(log_probs: Tensor, weights: Tensor) -> Tensor:
    """log sum_m w_m p_m for log-probabilities (M, n, C) and weights (M,)."""  # (n, C)
    return (log_probs + weights.log()[:, None, None]).logsumexp(0)


def pooled(log_probs: Tensor, pred: Tensor) -> Tensor:
    """The distributions nearest to ``log_probs`` (n, C) whose largest entry is that of ``pred`` (n,).

    Where other classes lead, the predicted class shares its mean probability with them, from the largest on, until that mean is
    no less than the next: argmin_q KL(p || q) subject to q_pred >= q_c for all c (pool adjacent violators).
    """
    own = log_probs.gather(1, pred[:, None])
    others, order = log_probs.scatter(1, pred[:, None], -torch.inf).sort(1, descending=True)  # (n, C) the last is -inf
    count = torch.arange(1, log_probs.shape[1] + 1, device=log_probs.device, dtype=log_probs.dtype)
    total = torch.cat([own, others[:, :-1]], 1).logcumsumexp(
        1
    )  # (n, C) of the predicted class and the k largest others
    mean = total - count.log()
    enough = (mean >= others).to(torch.int8).argmax(1, keepdim=True)  # the fewest that must share
    level = mean.gather(1, enough)
    place = torch.arange(log_probs.shape[1], device=log_probs.device)
    shared = torch.where(place < enough, level, others)
    return torch.zeros_like(log_probs).scatter(1, order, shared).scatter(1, pred[:, None], level)


def leading(log_probs: Tensor, pred: Tensor) -> Tensor:
    """The same log-probabilities (n, C), where ``pred`` wins its ties: by one unit in the last place."""
    own = log_probs.gather(1, pred[:, None])
    top = log_probs.scatter(1, pred[:, None], -torch.inf).amax(1, keepdim=True)
    above = torch.nextafter(top, torch.full_like(top, torch.inf))
    return log_probs.scatter(1, pred[:, None], torch.where(own > top, own, above))
