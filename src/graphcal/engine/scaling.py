"""Node-wise scaling, the form of every calibrator that keeps predictions: log softmax(s_n z_n) with s_n > 0."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcal.core import Outputs


def scaled(out: Outputs, scale: Tensor) -> Tensor:
    """log softmax(s z) with one scale for all nodes () or one per node (N,)."""  # (N, C)
    scale = scale.to(out.logits).reshape(-1, 1)
    return with_predictions((scale * out.logits).log_softmax(-1), out.pred)


def with_predictions(log_probs: Tensor, pred: Tensor) -> Tensor:
    """The same log-probabilities, where a tie that rounding has made goes to ``pred``.

    A positive scale keeps the order of logits, but two that differ by one unit in the last place can become equal, and
    argmax then takes the first. Such an entry is raised by one unit in the last place.
    """
    top, winner = log_probs.max(-1)
    if torch.equal(winner, pred):
        return log_probs
    lost = (winner != pred).nonzero().flatten()
    log_probs = log_probs.clone()
    log_probs[lost, pred[lost]] = torch.nextafter(top[lost], torch.full_like(top[lost], torch.inf))
    return log_probs


def log_odds(logits: Tensor) -> Tensor:
    """log p_c / (1 - p_c) of softmax(logits), exact also where p_c rounds to 1."""  # (N, C)
    log_probs = logits.log_softmax(-1)
    top = logits.argmax(-1, keepdim=True)
    rest = logits.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)  # everything but the top class
    log_rest = rest - logits.logsumexp(-1, keepdim=True)
    log_not = torch.log1p(-log_probs.exp()).scatter(-1, top, log_rest)
    return log_probs - log_not
