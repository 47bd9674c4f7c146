"""Maps of predictions that keep the predicted class: log softmax(s_n z_n) with s_n > 0, and ties that stay decided."""

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
    then takes the first. The other classes are put a few units in the last place below the largest: one unit of a logarithm is
    lost by exp. Equal largest logits stay equal. Without masks, which are slow: the sign of z - max z is 0 at the top, else -1.
    """
    highest = log_probs.amax(0)
    gap = torch.finfo(log_probs.dtype).eps * (4 + highest.abs())  # (n,)
    return torch.minimum(log_probs, (logits - logits.amax(0)).sign_().mul_(gap).add_(highest))


def break_ties(log_probs: Tensor, pred: Tensor) -> Tensor:
    """Log-probabilities (n, C) in which class ``pred`` (n,) is ahead of ties, as in `keep_top`."""
    classes = torch.arange(log_probs.shape[1], device=pred.device)
    top = (classes[:, None] == pred).to(log_probs)
    return keep_top(log_probs.T, top).T.contiguous()


def log_odds(logits: Tensor) -> Tensor:
    """log p_c / (1 - p_c) of softmax(logits), exact also where p_c rounds to 1."""  # (N, C)
    log_probs = logits.log_softmax(-1)
    top = logits.argmax(-1, keepdim=True)
    rest = logits.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)  # everything but the top class
    log_rest = rest - logits.logsumexp(-1, keepdim=True)
    log_not = torch.log1p(-log_probs.exp()).scatter(-1, top, log_rest)
    return log_probs - log_not
