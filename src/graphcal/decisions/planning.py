"""What would more labels do? The walk of `thresholds` repeated with the labels one would expect: a plan, not a promise."""

from __future__ import annotations

import math

from graphcal.decisions.decision import Plan
from graphcal.decisions.thresholds import NestedSets, certified_set, with_more_labels


def plan_labels(
    sets: NestedSets, labels: int, nodes: int, approved: int, max_error: float, risk: float, future: bool
) -> Plan | None:
    """The first of +50 %, +100 %, +300 % labels that decides more, by 2 % of the nodes at least, None where none does."""
    for factor in (1.5, 2.0, 4.0):
        more = round_number((factor - 1) * labels)
        if more >= nodes:
            return None
        last = certified_set(with_more_labels(sets, 1 + more / labels), max_error, risk, future)
        if last is None:
            continue
        then = round(nodes * float(sets.nodes[:, last].sum() / max(sets.nodes[:, -1].sum(), 1)))
        if then >= approved + 0.02 * nodes:
            return Plan(more, round_number(then, 2))
    return None


def round_number(value: float, digits: int = 1) -> int:
    """A count as people say it: one or two digits that matter."""
    if value < 1:
        return 1
    unit = 10 ** max(0, math.floor(math.log10(value)) - digits + 1)
    return int(round(value / unit) * unit)
