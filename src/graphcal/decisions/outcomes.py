"""Everything `graphcal decide` reports about a table: the decision, the risk curve, the review queue, sets, a row per node.

`backtest` makes the same decision on labelled test nodes: a random half, at most 500, certifies, the rest is decided and checked.
Those nodes have labels already, so it is no guarantee.

Review queue.  Without a named class the k least confident unlabelled nodes: they hold the most errors that confidence can point
at. With one, the k nodes most probably of it. The cut is fixed without labels, so the intervals are exact for a random draw:
    hits         Σ (1 - conf), or Σ p_c, over the k nodes; its interval from the labelled nodes beyond the same cut
                 (hypergeometric, `bounds`). A sum outside that interval gives way to the estimate from the labels
    precision    hits / k
    recall       share of all errors (members of the class) that lie beyond the cut: Clopper & Pearson on the labelled ones
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphcal.decisions.approval import approve_draw
from graphcal.decisions.bounds import (
    LEAST_INCLUSION,
    Array,
    error_count_interval,
    fewest_weighted,
    labels_needed,
    most_weighted,
    share_interval,
)
from graphcal.decisions.decision import NOT_RANDOM, Decision, Interval, Promise, class_name, class_number, score_of
from graphcal.decisions.masks import Draw, check_draw, random_split
from graphcal.decisions.sets import PredictionSets, sets_of
from graphcal.decisions.thresholds import RiskCurve, curve_of
from graphcal.files import atomic_file
from graphcal.text import plural

MOST_CERTIFYING = 500  # nodes that certify in a backtest


@dataclass(frozen=True, eq=False)
class ReviewQueue:
    """Nodes for a person to review, most worthwhile first, and what to expect of them."""

    nodes: Tensor = field(repr=False)  # (k,) node numbers
    what: str  # "errors", or the name of the class
    hits: Interval  # number of them among the k nodes
    expected: float  # the same by the probabilities alone
    recall: Interval | None  # share of all of them; None when no labelled node is one
    certainty: float
    random_draw: bool
    unit: str = "node"  # or "row", for a table

    @property
    def precision(self) -> Interval:
        k = len(self.nodes)
        return Interval(self.hits.value / k, self.hits.low / k, self.hits.high / k)

    @property
    def text(self) -> str:
        """Expected hits, without the assumption behind them."""
        kind = "errors" if self.what == "errors" else f"{self.unit}s of {self.what}"
        share = "" if self.recall is None else f", {self.recall.text()} of all there are"
        text = (
            f"Reviewing {plural(len(self.nodes), self.unit)} will find about {self.hits.value:,.0f} {kind} "
            f"({self.hits.low:,.0f} to {self.hits.high:,.0f}, {100 * self.certainty:g} % interval){share}."
        )
        if not self.hits.low <= self.expected <= self.hits.high:
            text += f" Their probabilities sum to {self.expected:,.0f}: check their calibration."
        return text

    @property
    def sentence(self) -> str:
        return self.text if self.random_draw else f"{self.text} The interval is an estimate: {NOT_RANDOM}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "sentence": self.sentence,
            "nodes": len(self.nodes),
            "what": self.what,
            "hits": self.hits.to_dict(),
            "expected": self.expected,
            "precision": self.precision.to_dict(),
            "recall": None if self.recall is None else self.recall.to_dict(),
            "certainty": self.certainty,
            "random_draw": self.random_draw,
        }


def review_queue(
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
) -> ReviewQueue:
    """Choose the ``budget`` unlabelled nodes of the pool most worth a review; masks and ``time`` as in `graphcal.decide`.

    >>> g = torch.Generator().manual_seed(0)
    >>> conf = 1 - 0.5 * torch.rand(4000, generator=g) ** 3
    >>> y = (torch.rand(4000, generator=g) > conf).long()
    >>> log_probs = torch.stack([conf, 1 - conf], dim=1).log()
    >>> queue = review_queue(log_probs, y, torch.arange(4000) < 500, budget=400, random_draw=True)
    >>> print(queue.sentence)
    Reviewing 400 nodes will find about 168 errors (103 to 211, 95 % interval), 45 % (32 to 60) of all there are.
    """
    draw = check_draw(log_probs, y, certify, pool, fitted, time=time, names=names)
    return queue_of(draw, budget, Promise(certainty=certainty, random_draw=random_draw, positive=positive))


def queue_of(draw: Draw, budget: int, promise: Promise) -> ReviewQueue:
    """Choose nodes of a draw that was checked."""
    target = class_number(promise.positive, draw.log_probs.shape[1], draw.names)
    conf, wrong = draw.scores(target)
    worth, hit = (1 - conf, wrong) if target is None else (conf, ~wrong)
    drawn, candidates = draw.certify.numpy(), np.flatnonzero(draw.open.numpy())
    if not 1 <= budget <= len(candidates):
        raise ValueError(f"budget must lie in 1..{len(candidates)}, the unlabelled nodes of the pool; got {budget}")
    nodes = candidates[np.argsort(-worth[candidates], kind="stable")[:budget]]
    beyond = drawn & (worth >= worth[nodes[-1]])
    seen, hits = int(beyond.sum()), int((beyond & hit).sum())
    low, high = error_count_interval(hits, budget + seen, seen, promise.certainty)
    low, high = low - hits, high - hits
    members = int((drawn & hit).sum())
    recall = None if members == 0 else Interval(hits / members, *share_interval(hits, members, promise.certainty))
    expected = float(worth[nodes].sum())
    by_labels = budget * hits / max(seen, 1)
    value = expected if low <= expected <= high else min(max(by_labels, low), high)
    return ReviewQueue(
        nodes=torch.from_numpy(nodes),
        what="errors" if target is None else class_name(target, draw.names),
        hits=Interval(value, float(low), float(high)),
        expected=expected,
        recall=recall,
        certainty=promise.certainty,
        random_draw=promise.random_draw,
    )


@dataclass(frozen=True, eq=False)
class Backtest:
    """A decision on nodes whose labels are known, and how it turned out."""

    decision: Decision
    curve: RiskCurve
    errors: int  # wrong nodes among the decided ones
    seed: int  # of the draw of the certification nodes

    def to_dict(self) -> dict[str, Any]:
        decision = {key: value for key, value in self.decision.to_dict().items() if key not in ("schema", "sentence")}
        return {
            **decision,
            "errors": self.errors,
            "seed": self.seed,
            "next_target": self.curve.next_target(self.decision.max_error),
            "curve": self.curve.to_dict(),
        }


def backtest(
    log_probs: Tensor, y: Tensor, nodes: Tensor, promise: Promise | None = None, seed: int = 0
) -> Backtest | None:
    """Decide on the labelled ``nodes`` (N,) from a random part of them; None where they are too few to certify anything."""
    promise, labelled = promise or Promise(), nodes & (y >= 0)
    count = int(labelled.sum())
    certify, _ = random_split(labelled, min(0.5, MOST_CERTIFYING / max(count, 1)), torch.Generator().manual_seed(seed))
    if count < 2 or int(certify.sum()) < labels_needed(promise.max_error, promise.certainty):
        return None
    draw = check_draw(log_probs, y, certify, labelled, drawn_here=True)
    decision = replace(approve_draw(draw, promise), backtest=True)
    errors = int(decision.wrong(draw.log_probs, draw.y)[decision.approved].sum())
    return Backtest(decision, curve_of(draw, promise.certainty), errors, seed)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A decision on the rows of a table, with all that `graphcal decide` reports."""

    log_probs: Tensor  # (N, C)
    used: Tensor  # (N,) rows that trained or fitted
    certify: Tensor  # (N,)
    decision: Decision
    curve: RiskCurve
    queue: ReviewQueue | None
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
        """Number of nodes of the named class, by probabilities and by labels, and whether the two agree."""
        if self.members is None:
            return ""
        m, what = (
            self.members,
            f"of the {plural(self.decision.nodes, self.decision.unit)} are of {self.decision.positive_name}",
        )
        if m.low <= m.value <= m.high:
            return f"By their probabilities about {m.value:,.0f} {what}; the labels alone say {m.low:,.0f} to {m.high:,.0f}."
        return (
            f"By the labels {m.low:,.0f} to {m.high:,.0f} {what}, but the probabilities sum to {m.value:,.0f}: check their "
            "calibration (graphcal check)."
        )

    @property
    def summary(self) -> list[tuple[str, str]]:
        """Headings and texts for a terminal, the most useful first."""
        decision, rows = self.decision, list(self.decision.summary)
        target = self.curve.next_target(decision.max_error)
        if not decision.num_approved and decision.positive is None and target is not None:
            text = f"--max-error {target[0]:g} would decide {plural(target[1], 'row')}; choose a target before you see the labels"
            rows.insert(1, ("Larger target", text))
        if self.members is not None:
            rows.append(("Class size", self.members_text))
        if self.queue is not None:
            rows.append(("Review queue", self.queue.text))
        if self.sets is not None:
            rows.append(("Sets", self.sets.sentence))
        return rows

    def to_dict(self) -> dict[str, Any]:
        return {
            "answer": self.answer,
            **self.decision.to_dict(),
            "curve": self.curve.to_dict(),
            "budget": None if self.queue is None else self.queue.to_dict(),
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
        """Write a Parquet row per node: node, prediction, confidence, decision, and where wanted look (rank) and set."""
        import pyarrow as pa
        import pyarrow.parquet

        top, pred = self.log_probs.max(dim=1)
        columns = {
            "node": ids,
            "prediction": pa.array([names[k] for k in pred.tolist()]),
            "confidence": pa.array(top.double().exp().clamp(max=1).numpy()),
            "decision": pa.array(self.states().tolist()),
        }
        if self.queue is not None:
            rank = np.zeros(len(top), np.int64)
            rank[self.queue.nodes.numpy()] = np.arange(1, len(self.queue.nodes) + 1)
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
    promise: Promise,
    used: Array | None = None,
    names: Sequence[str] | None = None,
    share: float = 1.0,
    budget: int | None = None,
    coverage: float | None = None,
    seed: int = 0,
    time: Any = None,
    strata: Any = None,
    random_arm: Array | None = None,
    others: Array | None = None,
    inclusion: Any = None,
    min_score: float | None = None,
) -> Outcome:
    """Decide on the rows of a table. Rows with a label (y >= 0) that were not ``used`` certify, or a random ``share`` of them.

    Where a ``random_arm`` is flagged, its rows certify; ``others`` are labelled rows beside it, which may have been ``used``.
    With ``min_score``, only rows with at least this score are decided, and only their labels count: random labels may have been
    drawn among them alone.

    With every row labelled and a ``share``, the draw is made here: a backtest, not a statement about rows yet to be decided.
    """
    fitted = torch.zeros(len(y), dtype=torch.bool) if used is None else torch.from_numpy(used)
    labelled, notes = (y >= 0) & ~fitted, []
    if random_arm is not None or inclusion is not None:
        if share < 1:
            raise ValueError("--certify draws labelled rows at random: leave it out with --random-arm or --inclusion.")
        if budget is not None or coverage is not None:
            raise ValueError(
                "budgets and prediction sets need one simple random draw: leave out --budget and --sets, or --random-arm and "
                "--inclusion."
            )
    if random_arm is not None:
        beside = torch.zeros_like(fitted) if others is None else torch.from_numpy(others)
        labelled = labelled | torch.from_numpy(random_arm) | beside
    zone = torch.ones_like(fitted)
    if min_score is not None:
        zone = score_of(log_probs, class_number(promise.positive, log_probs.shape[1], names)) >= min_score
        outside = int((~zone & (y < 0)).sum())
        notes.append(f"{plural(outside, 'unlabelled row')} with a score below {min_score:g} not decided")
        labelled = labelled & zone
        random_arm = None if random_arm is None else random_arm & zone.numpy()
    certify, complete = labelled, bool((labelled | fitted | ~zone).all())
    if not labelled.any():
        raise ValueError(
            "no row has a label and did not train or fit the model: there is nothing to certify a promise with"
        )
    if share < 1:
        certify, _ = random_split(labelled, share, torch.Generator().manual_seed(seed))
        notes.append(f"{int(certify.sum()):,} of {int(labelled.sum()):,} labelled rows certify, drawn with seed {seed}")
    elif complete and random_arm is None:
        raise ValueError(
            f"every row has a label: nothing is left to decide. Draw {int(labelled.sum()) // 2:,} of them at random to certify "
            "and see what happens to the rest: --certify 0.5"
        )
    if fitted.any():
        notes.append(
            f"{plural(int(fitted.sum()), 'row')} that trained or fitted the model: not decided, not certifying"
        )
    else:
        notes.append("assumed: no labelled row trained, stopped or calibrated the model; if some did, give --split")
    if strata is not None and (budget is not None or coverage is not None):
        raise ValueError(
            "budgets and prediction sets need one simple random draw, got strata: leave out --budget and --sets"
        )
    draw = check_draw(
        log_probs, y, certify, zone & ~fitted, fitted, strata=strata, time=time, names=names, drawn_here=complete,
        random_arm=random_arm, inclusion=inclusion,
    )  # fmt: skip
    promise = replace(
        promise,
        stratified=strata is not None,
        random_arm=random_arm is not None,
        known_chances=inclusion is not None,
        random_draw=promise.random_draw or random_arm is not None or inclusion is not None,
    )
    return Outcome(
        draw.log_probs,
        fitted,
        certify,
        replace(approve_draw(draw, promise), backtest=complete, unit="row"),
        curve_of(draw, promise.certainty),
        None if budget is None else replace(queue_of(draw, budget, promise), unit="row"),
        None if coverage is None else sets_of(draw, coverage),
        members_of(draw, class_number(promise.positive, log_probs.shape[1], names), promise.certainty),
        tuple(notes),
    )


def members_of(draw: Draw, target: int | None, certainty: float) -> Interval | None:
    """Number of unlabelled nodes of a class: Σ p_c by the probabilities, the interval from the labels alone."""
    if target is None:
        return None
    value = float(draw.log_probs[draw.open, target].double().exp().sum())
    if draw.others is not None or draw.inclusion is not None:
        return Interval(value, *_members_left(draw, target, certainty))
    strata = torch.zeros(len(draw.y), dtype=torch.long) if draw.strata is None else torch.from_numpy(draw.strata)
    groups = strata[draw.population].unique()
    ends = torch.zeros(2)
    for group in groups:  # strata share the risk
        inside = strata == group
        drawn = draw.certify & inside
        hits, nodes = int((draw.y[drawn] == target).sum()), int((draw.population & inside).sum())
        interval = error_count_interval(hits, nodes, int(drawn.sum()), 1 - (1 - certainty) / len(groups))
        ends += torch.tensor(interval) - hits
    return Interval(value, *ends.tolist())


def _members_left(draw: Draw, target: int, certainty: float) -> tuple[float, float]:
    """Interval of unlabelled members by inclusion probabilities, or by an arm drawn from all nodes or from unlabelled ones."""
    member, nodes = draw.y == target, int(draw.population.sum())
    labelled, rest = draw.labelled & draw.population, int(draw.open.sum())
    hits = int((member & labelled).sum())
    if draw.others is None:
        assert draw.inclusion is not None
        drawn, least = draw.inclusion[(member & labelled).numpy()], float(draw.inclusion[draw.population].min())
        if least < LEAST_INCLUSION:
            return 0.0, float(rest)
        risk = (1 - certainty) / 2
        ends = [bound(drawn, least, nodes, risk) - hits for bound in (fewest_weighted, most_weighted)]
    else:
        arm, k = int((member & draw.certify).sum()), int(draw.certify.sum())
        both = ((nodes, hits), (nodes - int(draw.others.sum()), arm))
        all_ends = [(end - seen) for K, seen in both for end in error_count_interval(arm, K, k, certainty)]
        ends = [min(all_ends), max(all_ends)]
    return tuple(float(min(max(end, 0), rest)) for end in ends)  # type: ignore[return-value]
