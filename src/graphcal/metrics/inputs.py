"""What a metric accepts: log-probabilities and class numbers. Everything else is refused, never guessed.

A library that guesses whether a tensor holds logits or probabilities guesses per batch, and is then silently wrong.
"""

from __future__ import annotations

import torch
from torch import Tensor

TOLERANCE = 1e-3  # |log Σ_k p_k| allowed: float32 sums over thousands of classes and bfloat16 models stay below it


def check_log_probs(log_probs: Tensor) -> None:
    """Refuse anything but a finite-or-minus-infinity (N, C) tensor whose rows are log-probabilities."""
    if not isinstance(log_probs, Tensor):
        raise ValueError(f"log_probs must be a torch tensor (N, C), got {type(log_probs).__name__}")
    if log_probs.ndim != 2 or not log_probs.is_floating_point():
        raise ValueError(
            "log_probs must be a floating point tensor of shape (N, C), got shape "
            f"{tuple(log_probs.shape)} and dtype {log_probs.dtype}"
        )
    if log_probs.shape[0] == 0 or log_probs.shape[1] < 2:
        raise ValueError(
            f"log_probs must have at least one node and two classes, got shape {tuple(log_probs.shape)}; "
            "is the mask empty?"
        )
    check_rows(log_probs)


def check_rows(log_probs: Tensor) -> None:
    """Refuse rows that do not sum to one as probabilities."""
    total = torch.logsumexp(log_probs, dim=1)  # (N,)  0 for log-probabilities
    off = total.abs().max()
    if bool(off <= TOLERANCE):
        return
    if bool(log_probs.isnan().any()):
        bad = int(log_probs.isnan().any(dim=1).sum())
        raise ValueError(
            f"log_probs has NaN in {bad} of {log_probs.shape[0]} rows; the model diverged or divided by zero"
        )
    sums = log_probs.double().sum(dim=1)
    if bool((log_probs >= 0).all()) and bool(((sums - 1).abs() <= TOLERANCE).all()):
        raise ValueError("log_probs holds probabilities (rows sum to 1); pass probs.log() instead")
    raise ValueError(
        "log_probs does not hold log-probabilities: log of the row sum should be 0 but reaches "
        f"{float(off):.3g}; if these are logits, pass logits.log_softmax(dim=-1)"
    )


def check_labels(y: Tensor, log_probs: Tensor) -> None:
    """Refuse labels that are not class numbers 0..C-1, one for each row."""
    if not isinstance(y, Tensor):
        raise ValueError(f"y must be a torch tensor of class numbers, got {type(y).__name__}")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise ValueError(f"y must hold integer class numbers, got dtype {y.dtype}")
    N, C = log_probs.shape
    if y.shape != (N,):
        raise ValueError(f"y must have shape ({N},) to match log_probs, got {tuple(y.shape)}")
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= C:
        hint = "; nodes without a label must be left out with the mask" if low < 0 else ""
        raise ValueError(f"y must lie in 0..{C - 1}, got values from {low} to {high}{hint}")


def check_bins(bins: int) -> None:
    """Refuse a number of bins that is not a positive integer."""
    if not isinstance(bins, int) or isinstance(bins, bool) or bins < 1:
        raise ValueError(f"bins must be a positive integer, got {bins!r}")


def check(log_probs: Tensor, y: Tensor) -> None:
    """Both checks: what every metric of labels calls first."""
    check_log_probs(log_probs)
    check_labels(y, log_probs)
