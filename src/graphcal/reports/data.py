"""What the report needs to know about one method, as plain numbers that fit in results.json.

`report_data(log_probs, y, mask)` takes the log-probabilities of each seed for all nodes and returns a dictionary that
`build` reads back: reliability for each binning a reader can choose, histograms of right and wrong, direction, test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.graphs import UNREACHABLE, Structure, neighbour_agreement, structure
from graphcal.metrics.bands import accuracy_interval, consistency_band
from graphcal.metrics.bins import Reliability, confidence, equal_mass_edges, equal_width_edges, tally
from graphcal.metrics.compare import compare
from graphcal.metrics.consistency import calibration_test
from graphcal.metrics.floor import debiased_of, floor_of
from graphcal.metrics.power import advice, label_limit
from graphcal.metrics.scores import ece_of
from graphcal.metrics.seeds import mean_ece_interval, pooled
from graphcal.metrics.slices import slices, worst

BINNINGS = ((10, "equal-width"), (15, "equal-width"), (20, "equal-width"), (30, "equal-width"), (20, "equal-mass"))


def numbers(values: Tensor) -> list[float | None]:
    """A tensor as JSON: five digits, null for an empty bin."""
    return [None if v != v else round(v, 5) for v in values.tolist()]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def edges(conf: Sequence[Tensor], bins: int, scheme: str) -> Tensor:
    """The edges of a binning; equal-mass ones are those of all seeds together."""
    return equal_width_edges(bins) if scheme == "equal-width" else equal_mass_edges(torch.cat(list(conf)), bins)


def binning_data(parts: Sequence[Reliability], conf: Sequence[Tensor]) -> dict[str, Any]:
    """One choice of bins: the diagram with both bands, and the ECE it gives."""
    rel = pooled(parts)
    low, high = consistency_band(rel)
    acc_low, acc_high = accuracy_interval(rel)
    return {
        "convention": rel.convention,
        "edges": numbers(rel.edges),
        "count": numbers(rel.count),
        "conf": numbers(rel.conf),
        "accuracy": numbers(rel.accuracy),
        "band": [numbers(low), numbers(high)],
        "interval": [numbers(acc_low), numbers(acc_high)],
        "ece": mean([ece_of(part) for part in parts]),
        "floor": mean([floor_of(c, rel.edges) for c in conf]),
        "debiased": mean([debiased_of(part) for part in parts]),
    }


def histogram(conf: Tensor, right: Tensor, bins: int) -> dict[str, Any]:
    """Share of all nodes by confidence, apart for right and wrong predictions."""
    rel = tally(conf, right, equal_width_edges(bins))
    return {
        "edges": numbers(rel.edges),
        "right": numbers(rel.right_sum / rel.nodes),
        "wrong": numbers((rel.count - rel.right_sum) / rel.nodes),
    }


def slice_data(log_probs: Sequence[Tensor], y: Tensor, mask: Tensor, graph: Data) -> dict[str, Any]:
    """The gap of every group of nodes, and the group that is certainly furthest off."""
    found = slices(log_probs, y, mask, structure(graph))
    keys = ("accuracy", "confidence", "gap", "gap_low", "gap_high", "ece", "floor")
    named = worst(found)
    return {
        "slices": [
            {
                "by": s.by,
                "group": s.group,
                "nodes": s.nodes,
                "small": s.small,
                **{k: round(getattr(s, k), 5) for k in keys},
            }
            for s in found
        ],
        "worst": None
        if named is None
        else f"{named.by}: {named.group} ({named.nodes} nodes, says {100 * named.confidence:.0f} %, "
        f"right {100 * named.accuracy:.0f} %)",
    }


def why(node: int, pred: int, agreement: float, facts: Structure) -> str:
    """Where a node sits in the graph, in words."""
    hops, degree = int(facts.hops[node]), int(facts.degree[node])
    near = (
        "no training node in reach"
        if hops == UNREACHABLE
        else f"{hops} hop{'s' * (hops != 1)} from the nearest training node"
    )
    around = "no neighbours" if degree == 0 else f"{round(agreement * degree)} of {degree} neighbours predicted alike"
    return f"{near}; {around}"


def changed_nodes(
    after: Sequence[Tensor], before: Sequence[Tensor], y: Tensor, mask: Tensor, graph: Data, most: int = 12
) -> list[dict[str, Any]]:
    """The nodes whose confidence moved most, averaged over seeds, with where they sit in the graph."""
    old = torch.stack([confidence(lp)[0] for lp in before]).mean(dim=0).cpu()
    new = torch.stack([confidence(lp)[0] for lp in after]).mean(dim=0).cpu()
    right = torch.stack([lp.argmax(dim=1) == y for lp in after]).double().mean(dim=0).cpu()
    pred, facts = after[0].argmax(dim=1), structure(graph)
    agreement = neighbour_agreement(pred, facts)
    moved = torch.where(mask.cpu(), (new - old).abs(), torch.zeros_like(new))
    return [
        {
            "node": node,
            "before": round(float(old[node]), 4),
            "after": round(float(new[node]), 4),
            "predicted": int(pred[node]),
            "label": int(y[node]),
            "right": round(float(right[node]), 3),
            "why": why(node, int(pred[node]), float(agreement[node]), facts),
        }
        for node in moved.topk(min(most, int(mask.sum()))).indices.tolist()
        if float(moved[node]) > 1e-4
    ]


def limit_data(log_probs: Tensor, graph: Data, interval: Sequence[float], bins: int) -> dict[str, Any]:
    """What the validation labels and test nodes allow, and what would help."""
    if graph.get("val_mask") is None:
        return {}
    limit = label_limit(log_probs, max(1, int(graph.val_mask.sum())), bins)
    return {"limit": limit.to_dict(), "advice": advice(limit, (interval[0], interval[1]))}


def report_data(
    log_probs: Sequence[Tensor],
    y: Tensor,
    mask: Tensor,
    bins: int = 20,
    graph: Data | None = None,
    before: Sequence[Tensor] | None = None,
    generator: torch.Generator | None = None,
) -> dict[str, Any]:
    """Everything the page shows of one method, from the (N, C) log-probabilities of each seed on the nodes in `mask`.

    With the `graph` also by slices of it and what its validation labels allow; with the uncalibrated model's log-probabilities
    `before` also the paired difference and the nodes that changed most.
    """
    chosen, labels = [lp[mask] for lp in log_probs], y[mask]
    conf = [confidence(lp)[0].cpu() for lp in chosen]
    right = [(lp.argmax(dim=1) == labels).cpu().double() for lp in chosen]
    binnings = BINNINGS if (bins, "equal-width") in BINNINGS else (*BINNINGS, (bins, "equal-width"))
    gap = [float((r - c).mean()) for r, c in zip(right, conf)]
    tests = [calibration_test(lp, labels, generator=generator) for lp in chosen]
    found: dict[str, Any] = {
        "nodes": len(labels),
        "seeds": len(chosen),
        "bins": f"{bins} equal-width",
        "binnings": {
            f"{B} {scheme}": binning_data(
                [tally(c, r, edges(conf, B, scheme), scheme) for c, r in zip(conf, right)], conf
            )
            for B, scheme in binnings
        },
        "histogram": histogram(torch.cat(conf), torch.cat(right), 20),
        "mean_confidence": mean([float(c.mean()) for c in conf]),
        "mean_gap": mean(gap),  # accuracy - confidence: positive is under-confident
        "ece_interval": list(mean_ece_interval(chosen, labels, bins, generator=generator)),
        "p": sorted(test.p for test in tests)[len(tests) // 2],
        "rejected": sum(test.p <= 0.05 for test in tests),
    }
    if graph is not None:
        found |= slice_data(log_probs, y, mask, graph) | limit_data(chosen[0], graph, found["ece_interval"], bins)
    if before is not None and any(a is not b for a, b in zip(log_probs, before)):
        old = [lp[mask] for lp in before]
        found["against"] = {
            m: compare(chosen, old, labels, m, bins, generator=generator).to_dict() for m in ("ece", "nll")
        }
        if graph is not None:
            found["changed"] = changed_nodes(log_probs, before, y, mask, graph)
    return found
