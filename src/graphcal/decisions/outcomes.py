"""Everything that `graphcal decide` says of a table of predictions: the decision, the curve, looks, sets, and a row per node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from graphcal.decisions.approval import approve_draw, class_number
from graphcal.decisions.bounds import Array, error_count_interval
from graphcal.decisions.budget import Looks, spend_on
from graphcal.decisions.curves import RiskCurve, curve_of
from graphcal.decisions.decision import Decision, Interval, Promise
from graphcal.decisions.masks import Draw, check_draw, random_split
from graphcal.decisions.sets import PredictionSets, sets_of
from graphcal.files import atomic_file


@dataclass(frozen=True, eq=False)
class Outcome:
    """The parts of the answer."""

    log_probs: Tensor  # (N, C)
    used: Tensor  # (N,) rows that trained or fitted
    certify: Tensor  # (N,)
    decision: Decision
    curve: RiskCurve
    looks: Looks | None
    sets: PredictionSets | None
    members: Interval | None  # of a named class among the unlabelled nodes
    notes: tuple[str, ...]

    @property
    def answer(self) -> Literal["decided", "none", "too few labels"]:
        if self.decision.num_approved:
            return "decided"
        return "none" if self.decision.plan is None else "too few labels"

    @property
    def members_text(self) -> str:
        """How many nodes are of the named class, by probabilities and by labels, and whether the two agree."""
        if self.members is None:
            return ""
        m, what = self.members, f"of the {self.decision.nodes:,} nodes are of {self.decision.positive}"
        if m.low <= m.value <= m.high:
            return f"By their probabilities about {m.value:,.0f} {what}; the labels alone say {m.low:,.0f} to {m.high:,.0f}."
        return (
            f"By the labels {m.low:,.0f} to {m.high:,.0f} {what}, but the probabilities sum to {m.value:,.0f}: check their "
            "calibration (graphcal check)."
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "answer": self.answer,
            **self.decision.to_dict(),
            "curve": self.curve.to_dict(),
            "budget": None if self.looks is None else self.looks.to_dict(),
            "sets": None if self.sets is None else self.sets.to_dict(),
            "members": None if self.members is None else self.members.to_dict(),
        }

    def states(self) -> Array:
        """(N,) auto, review, labelled (it certified) or fitted."""
        words = np.full(len(self.log_probs), "review", dtype=object)
        for mask, word in ((self.used, "fitted"), (self.certify, "labelled"), (self.decision.approved, "auto")):
            words[mask.numpy()] = word
        return words

    def write(self, path: str | Path, ids: Any, names: Sequence[str]) -> Path:
        """A Parquet row per node: node, prediction, confidence, decision, and where asked for look (rank) and set."""
        import pyarrow as pa
        import pyarrow.parquet

        top, pred = self.log_probs.max(dim=1)
        columns = {
            "node": ids,
            "prediction": pa.array([names[k] for k in pred.tolist()]),
            "confidence": pa.array(top.double().exp().clamp(max=1).numpy()),
            "decision": pa.array(self.states().tolist()),
        }
        if self.looks is not None:
            rank = np.zeros(len(top), np.int64)
            rank[self.looks.nodes.numpy()] = np.arange(1, len(self.looks.nodes) + 1)
            columns["look"] = pa.array(rank, mask=rank == 0)
        if self.sets is not None:
            member = self.sets.members.numpy()
            offsets = np.concatenate([[0], np.cumsum(member.sum(1))]).astype(np.int32)
            values = pa.array(np.array(list(names), dtype=object)[np.nonzero(member)[1]].tolist(), pa.string())
            columns["set"] = pa.ListArray.from_arrays(pa.array(offsets), values)
        with atomic_file(path) as file:
            pyarrow.parquet.write_table(pa.table(columns), file)
        return Path(path)


def decide_rows(
    log_probs: Tensor,
    y: Tensor,
    used: Array | None = None,
    names: Sequence[str] | None = None,
    max_error: float = 0.05,
    certainty: float = 0.95,
    promise: str = "pool",
    positive: str | None = None,
    share: float = 1.0,
    random_draw: bool = False,
    budget: int | None = None,
    coverage: float | None = None,
    seed: int = 0,
    time: Any = None,
    strata: Any = None,
) -> Outcome:
    """Rows with a label (y >= 0) that were not ``used`` certify, or a random ``share`` of them; all others are decided.

    With every row labelled and a ``share``, the draw is made here: a backtest, not a statement about rows yet to be decided.
    """
    fitted = torch.zeros(len(y), dtype=torch.bool) if used is None else torch.from_numpy(used)
    labelled, notes = (y >= 0) & ~fitted, []
    certify, complete = labelled, bool((labelled | fitted).all())
    if not labelled.any():
        raise ValueError(
            "no row has a label and did not train or fit the model: there is nothing to certify a promise with"
        )
    if share < 1:
        certify, _ = random_split(labelled, share, torch.Generator().manual_seed(seed))
        notes.append(f"{int(certify.sum()):,} of {int(labelled.sum()):,} labelled rows certify, drawn with seed {seed}")
    elif complete:
        raise ValueError(
            f"every row has a label: nothing is left to decide. Draw {int(labelled.sum()) // 2:,} of them at random to certify "
            "and see what happens to the rest: --certify 0.5"
        )
    if fitted.any():
        notes.append(f"{int(fitted.sum()):,} rows that trained or fitted the model neither certify nor are decided")
    else:
        notes.append(
            "taken for granted: no labelled row trained, stopped or calibrated the model; if some did, say --split"
        )
    if strata is not None and (budget is not None or coverage is not None):
        raise ValueError(
            "budgets and prediction sets need one simple random draw, got strata: leave out --budget and --sets"
        )
    draw = check_draw(
        log_probs, y, certify, ~fitted, fitted, strata=strata, time=time, names=names, drawn_here=complete
    )
    decision = approve_draw(draw, max_error, certainty, random_draw, cast(Promise, promise), positive, names)
    decision = replace(decision, backtest=complete)
    notes += [f"warning: {line}" for line in decision.warnings]
    return Outcome(
        draw.log_probs,
        fitted,
        certify,
        decision,
        curve_of(draw, certainty),
        None if budget is None else spend_on(draw, budget, positive, names, certainty, random_draw),
        None if coverage is None else sets_of(draw, coverage),
        members_of(draw, class_number(positive, log_probs.shape[1], names), certainty),
        tuple(notes),
    )


def members_of(draw: Draw, target: int | None, certainty: float) -> Interval | None:
    """How many unlabelled nodes are of a class: Σ p_c where probabilities are honest, the interval from the labels alone."""
    if target is None:
        return None
    strata = torch.zeros(len(draw.y), dtype=torch.long) if draw.strata is None else torch.from_numpy(draw.strata)
    groups = strata[draw.population].unique()
    ends = torch.zeros(2)
    for group in groups:  # strata share the risk
        inside = strata == group
        drawn = draw.certify & inside
        hits, nodes = int((draw.y[drawn] == target).sum()), int((draw.population & inside).sum())
        interval = error_count_interval(hits, nodes, int(drawn.sum()), 1 - (1 - certainty) / len(groups))
        ends += torch.tensor(interval) - hits
    return Interval(float(draw.log_probs[draw.open, target].double().exp().sum()), *ends.tolist())
