"""Confidence looked at from the side that ECE hides: on right and on wrong predictions, and with its sign.

gap         accuracy - mean confidence              < 0: over-confident
conf_right  mean confidence of right predictions    conf_wrong   that of wrong ones
over/under  the parts of ECE from bins that are too sure, and not sure enough
auroc       does confidence tell right from wrong?  a monotone map of confidence cannot change it
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from graphcal import metrics


def confidence_split(log_probs: Tensor, y: Tensor) -> dict[str, float]:
    """The scores above, with accuracy, ECE, its floor and NLL."""
    conf, pred = log_probs.max(-1)
    conf, right = conf.double().exp(), pred == y
    return {
        "accuracy": metrics.accuracy(log_probs, y),
        "conf": float(conf.mean()),
        "gap": metrics.signed_gap(log_probs, y),
        "conf_right": float(conf[right].mean()),
        "conf_wrong": float(conf[~right].mean()),
        "ece": metrics.ece(log_probs, y),
        "ece_floor": metrics.ece_floor(log_probs),
        "over": metrics.overconfidence(log_probs, y),
        "under": metrics.underconfidence(log_probs, y),
        "auroc": metrics.auroc(log_probs, y),
        "nll": metrics.nll(log_probs, y),
    }


def mean_row(rows: Sequence[dict[str, float]], **labels: Any) -> dict[str, Any]:
    """The mean of rows with the same names, behind ``labels``."""
    return {**labels, **{name: statistics.fmean(row[name] for row in rows) for name in rows[0]}}
