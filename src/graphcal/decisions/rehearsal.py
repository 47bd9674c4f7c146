"""A rehearsal on nodes whose labels are all known: some of them, drawn at random, certify; the rest is decided, and checked.

The validation nodes fitted the calibrator, so they cannot certify. Half of the test nodes, at most 500, are drawn with a seed
that is said: a true random draw, so the promise is a guarantee for the other test nodes. ``errors`` counts what really
happened to them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphcal.decisions.approval import approve
from graphcal.decisions.bounds import labels_needed
from graphcal.decisions.curves import risk_curve
from graphcal.decisions.masks import random_split

MOST = 500


def rehearse(
    log_probs: Tensor, y: Tensor, nodes: Tensor, max_error: float = 0.05, certainty: float = 0.95, seed: int = 0
) -> dict[str, Any] | None:
    """Decision and curve as a record, None where the nodes are too few to certify anything."""
    known = nodes & (y >= 0)
    count = int(known.sum())
    certify, _ = random_split(known, min(0.5, MOST / max(count, 1)), torch.Generator().manual_seed(seed))
    if count < 2 or int(certify.sum()) < labels_needed(max_error, certainty):
        return None
    decision = approve(log_probs, y, certify, known, max_error, certainty, random_draw=True)
    wrong = (log_probs.argmax(dim=1) != y)[decision.approved]
    curve = risk_curve(log_probs, y, certify, known, certainty)
    return {
        **decision.to_dict(),
        "errors": int(wrong.sum()),
        "seed": seed,
        "next_target": curve.next_target(max_error),
        "curve": curve.to_dict(),
    }


def rehearsal_sentence(method: str, record: dict[str, Any]) -> str:
    """The decision with how it came about, and how it turned out; where nothing is decided, the target that would do."""
    text = (
        f"With {method}: {record['sentence']} {record['labels']:,} of the test nodes, drawn with seed "
        f"{record['seed']}, certify"
    )
    if record["approved"]:
        return f"{text}; of the {record['approved']:,} decided nodes {record['errors']:,} are in fact wrong."
    if record["next_target"] is None:
        return f"{text}."
    target, nodes = record["next_target"]
    return f"{text}; a target of at most {100 * target:g} % errors would decide {nodes:,} nodes."
