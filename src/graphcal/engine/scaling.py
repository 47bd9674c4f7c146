"""Node-wise scaling, the form of every calibrator that keeps predictions: log softmax(s_n z_n) with s_n > 0."""

from __future__ import annotations

import torch
from torch import Tensor


def scaled(logits: Tensor, scale: Tensor) -> Tensor:
    """log softmax(s z) with one scale for all nodes () or one per node (N,)."""  # (N, C)
    scale = scale.to(logits).reshape(-1, 1)
    return with_predictions((scale * logits).log_softmax(-1), logits.argmax(-1))


def with_predictions(log_probs: Tensor, pred: Tensor) -> Tensor:
    """The same log-probabilities, where a tie that rounding has made goes to ``pred``.

    A positive scale keeps the order of logits, but two that differ by one unit in the last place can become equal, and
    argmax then takes the first. Such an entry is raised above it by a unit or two in the
    last place. Pure tensor operations: a calibration that ends here exports.
    """
    top, winner = log_probs.max(-1)
    precision = torch.finfo(log_probs.dtype)
    above = top + precision.eps * top.abs().clamp(min=precision.tiny)  # (N,)
    own = log_probs.gather(-1, pred[:, None]).squeeze(-1)
    return log_probs.scatter(-1, pred[:, None], torch.where(winner == pred, own, above)[:, None])


def log_odds(logits: Tensor) -> Tensor:
    """log p_c / (1 - p_c) of softmax(logits), exact also where p_c rounds to 1."""  # (N, C)
    log_probs = logits.log_softmax(-1)
    top = logits.argmax(-1, keepdim=True)
    rest = logits.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)  # everything but the top class
    log_rest = rest - logits.logsumexp(-1, keepdim=True)
    log_not = torch.log1p(-log_probs.exp()).scatter(-1, top, log_rest)
    return log_probs - log_not
