"""Risk against coverage, as a person wants to read it: errors among the most confident part, and nodes decided by target.

`risk_curve`   for growing parts of the pool: how many nodes, from which confidence, the share of errors among the labelled ones
               with Clopper & Pearson's interval (of each part alone)
`by_target`    for each error target on its own: how many nodes are certified
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from graphcal.decisions.approval import scores_of
from graphcal.decisions.bounds import Array, share_interval
from graphcal.decisions.masks import Draw, check_draw
from graphcal.decisions.thresholds import NestedSets, certified_set, nested_sets

TARGETS = (0.005, *(k / 100 for k in range(1, 31)))


@dataclass(frozen=True, eq=False)
class RiskCurve:
    """Errors of ever larger parts of the pool, and what is certified at each target."""

    threshold: Array  # (T,) falling
    coverage: Array  # (T,) share of the unlabelled nodes
    nodes: Array  # (T,) unlabelled nodes
    error: Array  # (T,) share of wrong ones among the labelled; nan where there is none
    low: Array  # (T,) its interval
    high: Array
    targets: tuple[float, ...]
    decided: tuple[int, ...]  # nodes certified at each target
    total: int  # unlabelled nodes
    certainty: float

    def next_target(self, max_error: float) -> tuple[float, int] | None:
        """The smallest target above ``max_error`` that decides some nodes, and how many; None where none does."""
        pairs = zip(self.targets, self.decided)
        return next((pair for pair in pairs if pair[1] and pair[0] > max_error), None)

    def to_dict(self) -> dict[str, Any]:
        def plain(values: Array, digits: int = 5) -> list[float | None]:
            return [None if np.isnan(v) else round(float(v), digits) for v in values]

        columns = {k: plain(getattr(self, k)) for k in ("threshold", "coverage", "error", "low", "high")}
        return {
            **columns,
            "nodes": self.nodes.tolist(),
            "targets": list(self.targets),
            "decided": list(self.decided),
            "total": self.total,
            "certainty": self.certainty,
        }


def risk_curve(
    log_probs: Tensor,
    y: Tensor,
    certify: Any,
    pool: Any = None,
    certainty: float = 0.95,
    targets: Sequence[float] = TARGETS,
    steps: int = 50,
    fitted: Any = None,
    drawn_here: bool = False,
) -> RiskCurve:
    """Compute the curve of predictions by confidence; masks as in `graphcal.decide`."""
    draw = check_draw(log_probs, y, certify, pool, fitted, drawn_here=drawn_here)
    return curve_of(draw, certainty, targets, steps)


def curve_of(draw: Draw, certainty: float = 0.95, targets: Sequence[float] = TARGETS, steps: int = 50) -> RiskCurve:
    """Compute the curve of a draw that was checked."""
    certify, population = draw.certify, draw.population
    arrays = (*scores_of(draw.log_probs, draw.y, None), certify.numpy(), population.numpy())
    fine, coarse = nested_sets(*arrays, draw.strata), nested_sets(*arrays, draw.strata, steps=steps)
    total = int((population & ~certify).sum())
    error, low, high = error_shares(coarse, certainty)
    return RiskCurve(
        coarse.threshold,
        coarse.unlabelled / total,
        coarse.unlabelled,
        error,
        low,
        high,
        tuple(targets),
        tuple(by_target(fine, targets, 1 - certainty)),
        total,
        certainty,
    )


def error_shares(sets: NestedSets, certainty: float) -> tuple[Array, Array, Array]:
    """(T,) share of wrong nodes in each set with the ends of its interval; strata count by their size and share the risk."""
    K, k, e = sets.nodes, sets.labelled, sets.wrong
    level = 1 - (1 - certainty) / len(K)
    ends = [share_interval(int(b), int(a), level) if a else (0.0, 1.0) for a, b in zip(k.flat, e.flat)]
    low, high = np.array(ends).reshape(*k.shape, 2).transpose(2, 0, 1)  # (H, T) each
    weight = K / K.sum(axis=0)
    seen = np.where(k > 0, e / np.maximum(k, 1), np.where(K > 0, np.nan, 0.0))
    return (weight * seen).sum(axis=0), (weight * low).sum(axis=0), (weight * high).sum(axis=0)


def by_target(sets: NestedSets, targets: Sequence[float], risk: float) -> list[int]:
    """Unlabelled nodes certified at each target, each promised on its own."""
    found = (certified_set(sets, target, risk) for target in targets)
    return [0 if last is None else int(sets.unlabelled[last]) for last in found]
