"""Maps of predictions that keep the predicted class: node-wise scaling, and mixtures of several predictions of the same nodes.

    scaled    log softmax(s_n z_n) with s_n > 0: the form of every calibrator that keeps predictions
    mixture   log sum_m w_m p_nm, with the convex weights of `stack_weights`:
              maximise over the simplex   sum_n log sum_m w_m p_nm  +  sum_m prior_m log w_m

Stacking takes p_nm, the probability that m gave to the label, from predictions that did not see it. It is concave; EM climbs
it. The prior counts like observations that its member alone explains. `pooled` projects distributions onto those that keep a
prediction.
"""

from __future__ import annotations

import torch
from torch import Tensor


def scaled(logits: Tensor, scale: Tensor) -> Tensor:
    """log softmax(s z) of logits (N, C) with one scale for all nodes () or one per node (N,)."""  # (N, C)
    return scaled_columns(logits.T, scale).T.contiguous()


def scaled_columns(logits: Tensor, scale: Tensor) -> Tensor:
    """log softmax(s z) of logits (C, n) with one scale for all nodes () or one per node (n,)."""  # (C, n)
    return keep_top((scale.to(logits) * logits).log_softmax(0), logits)


def keep_top(log_probs: Tensor, logits: Tensor) -> Tensor:
    """Log-probabilities (C, n) in which the class of the largest logit stays ahead after rounding, also after ``exp``.

    A positive scale keeps the order of logits, but two that differ by one unit in the last place can become equal, and argmax
    then takes the first. The predicted class is put a few units in the last place above the others: one unit of a logarithm is
    lost by exp. Equal largest logits stay equal.
    """
    return _raised(log_probs, logits == logits.amax(0))


def with_predictions(log_probs: Tensor, pred: Tensor) -> Tensor:
    """Log-probabilities (n, C) in which class ``pred`` (n,) is ahead of ties, as in `keep_top`."""
    classes = torch.arange(log_probs.shape[1], device=pred.device)
    return _raised(log_probs.T, classes[:, None] == pred).T.contiguous()


def _raised(log_probs: Tensor, top: Tensor) -> Tensor:
    """Put the classes ``top`` (C, n) above the others of ``log_probs`` (C, n)."""
    precision = torch.finfo(log_probs.dtype)
    others = torch.where(top, -torch.inf, log_probs).amax(0).clamp(min=precision.min)
    above = others + precision.eps * (4 + others.abs())  # (n,)
    return torch.where(top, torch.maximum(log_probs, above), log_probs)


def log_odds(logits: Tensor) -> Tensor:
    """log p_c / (1 - p_c) of softmax(logits), exact also where p_c rounds to 1."""  # (N, C)
    log_probs = logits.log_softmax(-1)
    top = logits.argmax(-1, keepdim=True)
    rest = logits.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)  # everything but the top class
    log_rest = rest - logits.logsumexp(-1, keepdim=True)
    log_not = torch.log1p(-log_probs.exp()).scatter(-1, top, log_rest)
    return log_probs - log_not


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
