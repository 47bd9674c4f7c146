"""What predictions look like, small enough to travel in a calibrator's file: counts of confidences and of predicted classes.

    {"nodes": 5000, "confidence": [...20 counts...], "predicted": [...C counts...], "prior": [...C means...],
     "degree": [...7 counts...], "promise": {"threshold": 0.87, "max_error": 0.05, "certainty": 0.95}}

`graphcal watch` compares later predictions with it. Degrees are there when the graph was given, the promise when a decision was.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.graphs import structure
from graphcal.metrics.bins import confidence
from graphcal.metrics.inputs import check_log_probs

BINS = 20  # of confidence, equal width
DEGREES = (0, 1, 2, 4, 8, 16)  # upper ends of the groups of degrees


def reference_summary(log_probs: Tensor, graph: Data | None = None, decision: Any = None) -> dict[str, Any]:
    """The summary of predictions (N, C), with the degrees of ``graph`` and the promise of a ``decision`` where given.

    >>> log_probs = torch.tensor([[0.9, 0.1], [0.4, 0.6]]).log()
    >>> summary = reference_summary(log_probs)
    >>> summary["predicted"], [round(p, 2) for p in summary["prior"]]
    ([1, 1], [0.65, 0.35])
    """
    check_log_probs(log_probs)
    conf, C = confidence(log_probs)[0], log_probs.shape[1]
    cells = (conf * BINS).ceil().long().clamp(1, BINS) - 1  # (lo, hi]
    found: dict[str, Any] = {
        "nodes": len(log_probs),
        "confidence": torch.bincount(cells, minlength=BINS).tolist(),
        "predicted": torch.bincount(log_probs.argmax(dim=1), minlength=C).tolist(),
        "prior": [round(p, 6) for p in log_probs.double().exp().mean(dim=0).tolist()],
    }
    if graph is not None:
        group = torch.bucketize(structure(graph).degree, torch.tensor(DEGREES))
        found["degree"] = torch.bincount(group, minlength=len(DEGREES) + 1).tolist()
    if decision is not None and decision.threshold is not None:
        found["promise"] = {k: getattr(decision, k) for k in ("threshold", "max_error", "certainty")}
    return found
