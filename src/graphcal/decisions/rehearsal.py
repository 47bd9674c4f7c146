"""Backtest of automatic decisions on labelled test nodes: a random part certifies, the rest is decided and checked.

The validation nodes fitted the calibrator, so they cannot certify. Half of the test nodes, at most 500, are drawn with a fixed
seed; ``errors`` counts the wrong ones among the decided rest. Those nodes have labels already, so the record is a backtest and
no guarantee: for unlabelled nodes, `graphcal decide` asks how the labelled ones were drawn.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphcal.decisions.approval import approve_draw
from graphcal.decisions.bounds import labels_needed
from graphcal.decisions.curves import curve_of
from graphcal.decisions.masks import check_draw, random_split

MOST = 500


def rehearse(
    log_probs: Tensor, y: Tensor, nodes: Tensor, max_error: float = 0.05, certainty: float = 0.95, seed: int = 0
) -> dict[str, Any] | None:
    """Return decision and curve as a record, None where the nodes are too few to certify anything."""
    labelled = nodes & (y >= 0)
    count = int(labelled.sum())
    certify, _ = random_split(labelled, min(0.5, MOST / max(count, 1)), torch.Generator().manual_seed(seed))
    if count < 2 or int(certify.sum()) < labels_needed(max_error, certainty):
        return None
    draw = check_draw(log_probs, y, certify, labelled, drawn_here=True)
    decision, curve = approve_draw(draw, max_error, certainty), curve_of(draw, certainty)
    wrong = (log_probs.argmax(dim=1) != y)[decision.approved]
    return {
        **{key: value for key, value in decision.to_dict().items() if key != "sentence"},
        "guarantee": False,
        "errors": int(wrong.sum()),
        "seed": seed,
        "next_target": curve.next_target(max_error),
        "curve": curve.to_dict(),
    }


def rehearsal_sentence(method: str, record: dict[str, Any], unit: str = "nodes") -> str:
    """Say what the backtest of a method is, what it decides, and how that turned out; ``unit`` is nodes or rows."""
    drawn, others, decided = record["labels"], record["nodes"], record["approved"]
    target = f"at most {100 * record['max_error']:g} % errors"
    text = f"Backtest with {method}: of {drawn + others:,} labelled test {unit}, {drawn:,} drawn at random certify"
    if decided:
        share = f"{decided:,} ({100 * decided / others:.0f} %)"
        text += f"; {share} of the others would be decided with {target}, and {record['errors']:,} of them are in fact wrong"
    else:
        text += f"; none of the others would be decided with {target}"
        if record.get("next_target"):
            larger, count = record["next_target"]
            text += f", {count:,} with a target of {100 * larger:g} %"
    warnings = "".join(f" Warning: {line}." for line in record.get("warnings") or ())
    return f"{text}.{warnings} For unlabelled {unit} run: graphcal decide."
