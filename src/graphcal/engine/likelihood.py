"""The losses of convex fits: mean negative log-likelihood, and Platt's targets where labels would ask for certainty.

Where a model is right on every node, its NLL falls without end as its confidence grows. Platt (1999) counts one more node of
each outcome: of n nodes that are all right, each is taken to be right with probability 1 - 1 / (n + 2).
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import one_hot


def mean_nll(logits: Tensor, y: Tensor) -> Tensor:
    """Mean negative log-likelihood of logits (n, C) under labels (n,)."""
    return -(logits.gather(-1, y[:, None]).squeeze(-1) - logits.logsumexp(-1)).mean()


def soft_nll(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of logits (n, C) under target probabilities (n, C)."""
    return (logits.logsumexp(-1) - (target * logits).sum(-1)).mean()


def platt_targets(y: Tensor, logits: Tensor, contrast: Tensor | None = None) -> Tensor:
    """One-hot labels (n, C), smoothed on the nodes of every column whose nodes the logits (n, C) get all right.

    A column k of ``contrast`` (n, C, K) has the nodes where it is not zero; without it there is one column, of all nodes.
    """
    classes = logits.shape[1]
    target = one_hot(y, classes).double()
    in_column = (logits.new_ones(len(y), 1, 1) if contrast is None else contrast).abs().amax(1) > 0  # (n, K)
    wrong = logits.argmax(-1) != y  # (n,)
    all_right = ~in_column[wrong].any(0)  # (K,)
    if not all_right.any():
        return target
    share = all_right.double() / (in_column.sum(0) + 2)
    smooth = (in_column * share).amax(1, keepdim=True)  # (n, 1)
    return target * (1 - smooth) + (1 - target) * smooth / (classes - 1)
