"""A budget of looks: which k nodes are most worth a person's time, and what will be found there.

Without a named class the k least confident unlabelled nodes: they hold the most errors that confidence can point at. With one,
the k nodes most probably of it. The cut is fixed without labels, so the intervals are exact for a random draw:
    found        Σ (1 - conf), or Σ p_c, over the k nodes; its interval from the labelled nodes beyond the same cut
                 (hypergeometric, `bounds`). A sum outside that interval gives way to the estimate from the labels
    precision    found / k
    recall       share of all errors (members of the class) that lie beyond the cut: Clopper & Pearson on the labelled ones
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcal.decisions.approval import class_name, class_number, scores_of
from graphcal.decisions.bounds import error_count_interval, share_interval
from graphcal.decisions.decision import NOT_RANDOM, Interval
from graphcal.decisions.masks import Draw, check_draw


@dataclass(frozen=True, eq=False)
class Looks:
    """The nodes to look at, most worthy first, and what to expect."""

    nodes: Tensor = field(repr=False)  # (k,) node numbers
    what: str  # "errors", or the name of the class
    found: Interval  # number of them among the k nodes
    expected: float  # the same by the probabilities alone
    recall: Interval | None  # share of all of them; None when no labelled node is one
    certainty: float
    random_draw: bool

    @property
    def precision(self) -> Interval:
        k = len(self.nodes)
        return Interval(self.found.value / k, self.found.low / k, self.found.high / k)

    @property
    def sentence(self) -> str:
        kind = "errors" if self.what == "errors" else f"nodes of {self.what}"
        share = "" if self.recall is None else f", {self.recall.text()} of all there are"
        text = (
            f"Looking at {len(self.nodes):,} nodes will find about {self.found.value:,.0f} {kind} "
            f"({self.found.low:,.0f} to {self.found.high:,.0f}, {100 * self.certainty:g} % interval){share}."
        )
        if not self.found.low <= self.expected <= self.found.high:
            text += f" Their probabilities sum to {self.expected:,.0f}: check their calibration."
        return text if self.random_draw else f"{text} The interval is an estimate: {NOT_RANDOM}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "sentence": self.sentence,
            "nodes": len(self.nodes),
            "what": self.what,
            "found": self.found.to_dict(),
            "expected": self.expected,
            "precision": self.precision.to_dict(),
            "recall": None if self.recall is None else self.recall.to_dict(),
            "certainty": self.certainty,
            "random_draw": self.random_draw,
        }


def spend(
    log_probs: Tensor,
    y: Tensor,
    certify: Any,
    budget: int,
    pool: Any = None,
    positive: int | str | None = None,
    names: Sequence[str] | None = None,
    certainty: float = 0.95,
    random_draw: bool = False,
    fitted: Any = None,
    time: Any = None,
) -> Looks:
    """Choose the ``budget`` unlabelled nodes of the pool most worth a look; masks and ``time`` as in `graphcal.decide`.

    >>> g = torch.Generator().manual_seed(0)
    >>> conf = 1 - 0.5 * torch.rand(4000, generator=g) ** 3
    >>> y = (torch.rand(4000, generator=g) > conf).long()
    >>> log_probs = torch.stack([conf, 1 - conf], dim=1).log()
    >>> looks = spend(log_probs, y, torch.arange(4000) < 500, budget=400, random_draw=True)
    >>> print(looks.sentence)
    Looking at 400 nodes will find about 168 errors (103 to 211, 95 % interval), 45 % (32 to 60) of all there are.
    """
    draw = check_draw(log_probs, y, certify, pool, fitted, time=time, names=names)
    return spend_on(draw, budget, positive, names, certainty, random_draw)


def spend_on(
    draw: Draw,
    budget: int,
    positive: int | str | None = None,
    names: Sequence[str] | None = None,
    certainty: float = 0.95,
    random_draw: bool = False,
) -> Looks:
    """Choose nodes of a draw that was checked."""
    target = class_number(positive, draw.log_probs.shape[1], names)
    conf, wrong = scores_of(draw.log_probs, draw.y, target)
    worth, hit = (1 - conf, wrong) if target is None else (conf, ~wrong)
    drawn, candidates = draw.certify.numpy(), np.flatnonzero(draw.open.numpy())
    if not 1 <= budget <= len(candidates):
        raise ValueError(f"budget must lie in 1..{len(candidates)}, the unlabelled nodes of the pool; got {budget}")
    nodes = candidates[np.argsort(-worth[candidates], kind="stable")[:budget]]
    beyond = drawn & (worth >= worth[nodes[-1]])
    seen, hits = int(beyond.sum()), int((beyond & hit).sum())
    low, high = error_count_interval(hits, budget + seen, seen, certainty)
    low, high = low - hits, high - hits
    members = int((drawn & hit).sum())
    recall = None if members == 0 else Interval(hits / members, *share_interval(hits, members, certainty))
    expected = float(worth[nodes].sum())
    by_labels = budget * hits / max(seen, 1)
    value = expected if low <= expected <= high else min(max(by_labels, low), high)
    name = "errors" if target is None else class_name(target, names)
    found = Interval(value, float(low), float(high))
    return Looks(torch.from_numpy(nodes), name, found, expected, recall, certainty, random_draw)
