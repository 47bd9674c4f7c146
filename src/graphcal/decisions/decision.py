"""A promise and the decision that keeps it: values that save, load and apply to new rows.

decision = graphcal.decide(log_probs, y, certify=mask, max_error=0.05, random_draw=True)
decision.save("decision.json")
Decision.load("decision.json").apply(new_log_probs)        # (N,) bool
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from graphcal.files import file_errors, write_atomically
from graphcal.metrics.bins import confidence
from graphcal.metrics.inputs import check_log_probs
from graphcal.text import Summarized, plural

Kind = Literal["pool", "future", "average"]
Bound = Literal["random draw", "random arm", "known chances"]
SCHEMA = 1  # of decision.json
CLASSES_SHOWN = 3  # in a summary: those that lose the most members

NOT_RANDOM = "nobody has stated that the labels are a random draw; investigated cases and splits in file order are not"


@dataclass(frozen=True)
class Promise:
    """Promise about the approved nodes.

    Parameters
    ----------
    max_error : float
        Largest share of wrong nodes among the approved ones.
    certainty : float
        Probability, over draws of the certification nodes, with which the promise holds.
    kind : "pool", "future" or "average"
        Realised errors of this pool, errors of future nodes of the same source, or errors on average over draws.
    random_draw : bool
        Whether the user states that the certification nodes were drawn at random. Without it there is no guarantee.
    positive : int or str, optional
        Class to select with precision ``1 - max_error``, by number or name. Without it every class is decided by confidence.
    stratified : bool
        Whether the certification nodes were drawn at random within strata.
    random_arm : bool
        Whether labels that were drawn at random are flagged among others that were not.
    known_chances : bool
        Whether labels were drawn with known inclusion probabilities.
    """

    max_error: float = 0.05
    certainty: float = 0.95
    kind: Kind = "pool"
    random_draw: bool = False
    positive: int | str | None = None
    stratified: bool = False
    random_arm: bool = False
    known_chances: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.max_error < 1 or not 0.5 <= self.certainty < 1:
            raise ValueError(
                f"max_error must lie between 0 and 1 and certainty in 0.5..1, got {self.max_error} and {self.certainty}; "
                "0.05 means 5 %"
            )
        if self.kind not in get_args(Kind):
            raise ValueError(f"promise must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        if self.kind == "average" and (self.stratified or self.random_arm or self.known_chances):
            raise ValueError(
                "the promise on average needs one simple random draw: leave strata, random_arm and inclusion out, or promise "
                "the pool"
            )
        if self.kind == "future" and self.known_chances:
            raise ValueError("inclusion probabilities carry a promise about the pool only, not about future nodes.")
        if self.stratified and (self.random_arm or self.known_chances):
            raise ValueError(
                "strata do not go with random_arm or inclusion: give the inclusion probability in each stratum."
            )

    @property
    def risk(self) -> float:
        """Probability δ with which the promise may fail."""
        return 1 - self.certainty

    @property
    def certainty_text(self) -> str:
        if self.kind == "average":
            return "on average over draws, not in every single one"
        future = " for this and for future nodes of the same source" if self.kind == "future" else ""
        return f"{100 * self.certainty:g} % certain{future}"


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its interval."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)

    def text(self) -> str:
        return f"{100 * self.value:.0f} % ({100 * self.low:.0f} to {100 * self.high:.0f})"


@dataclass(frozen=True)
class Plan:
    """Estimated effect of more labels, drawn at random, by the error rates seen so far."""

    labels: int  # more of them
    nodes: int  # decided then


@dataclass(frozen=True)
class ClassOutcome:
    """Expected effect of a decision on the members of one class, by their probabilities."""

    name: str
    decided: int  # nodes decided as this class
    missed: float  # expected members among the nodes decided as another class
    expected: float  # expected members among all nodes to decide
    nodes: int  # to decide

    @property
    def share(self) -> float:
        """Share of the nodes that are expected to be members."""
        return self.expected / self.nodes

    @property
    def text(self) -> str:
        lost = f" ({100 * self.missed / self.expected:.0f} % of all)" if self.expected > 0 else ""
        are = "is" if round(self.missed) == 1 else "are"
        return (
            f"{self.name}: {self.decided:,} decided as it; of about {self.expected:,.0f} members "
            f"{self.missed:,.0f}{lost} {are} decided as something else"
        )


@dataclass(frozen=True, eq=False)
class Decision(Summarized):
    """Nodes that can be decided automatically, and the promise about them.

    `graphcal.decide` makes it. Certification nodes are neither approved nor reviewed: their labels are known.

    Attributes
    ----------
    approved, review : Tensor of shape (N,), bool
        Nodes to act on without review, and nodes for a person.
    threshold : float or None
        Smallest score of an approved node; None if there is none.
    promise : Promise
        Target error, certainty and kind of the promise.
    errors_at_most : int
        Bound on the number of wrong approved nodes, with ``certainty``. With the promise "average" it holds on average over
        draws; with "future" the share ``max_error`` is promised for new nodes.
    guaranteed : bool
        Whether the user stated a random draw that the data do not contradict.

    Examples
    --------
    >>> import torch, graphcal
    >>> probs = torch.rand(2000, generator=torch.Generator().manual_seed(0)) / 2 + 0.5
    >>> y = (torch.rand(2000, generator=torch.Generator().manual_seed(1)) > probs).long()  # class 0 with that probability
    >>> log_probs, certify = torch.stack([probs, 1 - probs], 1).log(), torch.arange(2000) < 500
    >>> decision = graphcal.decide(log_probs, y, certify=certify, max_error=0.2, random_draw=True)
    >>> decision.nodes, int(decision.approved.sum()) == decision.num_approved, decision.guaranteed
    (1500, True, True)
    >>> decision.errors_at_most == int(0.2 * decision.num_approved), 0 < decision.coverage < 1
    (True, True)
    >>> decision.max_error, decision.certainty, dict(decision.summary)["Promise"]
    (0.2, 0.95, 'at most 20 % errors, 95 % certain')
    >>> again = Decision.from_dict(decision.to_dict())  # decision.save(path) and Decision.load(path) do this with a file
    >>> approved = again.apply(log_probs)  # (N,) bool
    >>> torch.equal(approved, again.score(log_probs) >= decision.threshold), again.sentence == decision.sentence
    (True, True)
    >>> int((again.wrong(log_probs, y) & decision.approved).sum()) <= decision.errors_at_most
    True
    """

    promise: Promise
    threshold: float | None  # smallest confidence that is approved; None when no node is
    approved: Tensor = field(repr=False)  # (N,) bool; empty in a loaded decision
    review: Tensor = field(
        repr=False
    )  # (N,) bool: unlabelled nodes of the pool that need a person; empty in a loaded one
    num_approved: int
    num_review: int
    labels: int  # certification nodes
    labelled_above: int  # of them at or above the threshold
    errors_seen: int  # wrong ones among those
    num_classes: int
    positive: int | None = None  # number of the class that was selected, where one was named
    positive_name: str | None = None
    plan: Plan | None = None
    recall: Interval | None = None  # share of the selected class that is approved
    classes: tuple[ClassOutcome, ...] = ()  # for two classes, or rare ones: what is decided and missed
    warnings: tuple[str, ...] = ()  # read these before acting
    backtest: bool = False  # the nodes "to decide" have labels already
    held: bool = False  # whether some nodes were excluded from approval
    others: int = 0  # labels beside a random arm: they chose where the search starts
    bound: Bound = "random draw"  # labels that carry the promise
    unit: str = "node"  # or "row", for a table

    @property
    def max_error(self) -> float:
        """Largest promised share of wrong nodes among the approved ones."""
        return self.promise.max_error

    @property
    def certainty(self) -> float:
        """Probability with which the promise holds."""
        return self.promise.certainty

    @property
    def nodes(self) -> int:
        """Number of nodes to decide."""
        return self.num_approved + self.num_review

    @property
    def coverage(self) -> float:
        """Share of the unlabelled nodes of the pool that is approved."""
        return self.num_approved / self.nodes

    @property
    def errors_at_most(self) -> int:
        """Largest number of approved nodes that may be wrong under the promise."""
        return int(self.max_error * self.num_approved + 1e-9)

    @property
    def guaranteed(self) -> bool:
        """Return whether the user stated a random draw, the data do not contradict it, and there are nodes yet to decide."""
        return self.promise.random_draw and not self.backtest

    def apply(self, log_probs: Tensor, held: Tensor | None = None) -> Tensor:
        """Approve new rows (N, C) at the threshold of this decision; return a boolean mask (N,).

        The promise covers rows outside the pool only if it was made for "future" nodes and they come from the same source. Give
        ``held`` (N,), the rows that must not be approved, where the decision was made with such rows.
        """
        check_log_probs(log_probs)
        if log_probs.shape[1] != self.num_classes:
            raise ValueError(f"Expected log-probabilities with {self.num_classes} classes, got {log_probs.shape[1]}.")
        if self.held and held is None:
            raise ValueError("This decision excluded some rows from approval. Pass `held`, the mask of such rows.")
        if self.threshold is None:
            return torch.zeros(len(log_probs), dtype=torch.bool)
        approved = self.score(log_probs) >= self.threshold
        return approved if held is None else approved & ~held

    def score(self, log_probs: Tensor) -> Tensor:
        """The score (N,) that is compared with the threshold: confidence, or the probability of the selected class."""
        return score_of(log_probs, self.positive)

    def wrong(self, log_probs: Tensor, y: Tensor) -> Tensor:
        """Return whether approving each row (N,) would be an error, given its label."""
        return y != (log_probs.argmax(dim=1) if self.positive is None else self.positive)

    @property
    def sentence(self) -> str:
        """The decision in words, promise and assumption included."""
        parts = [self._decided(), self._left(), self._more()]
        return f"{'; '.join(part for part in parts if part)}. {self._standing()}".rstrip()

    def _decided(self) -> str:
        share, sure = f"{100 * self.max_error:g} %", self.promise.certainty_text
        if self.num_approved == 0:
            what = "decided automatically" if self.positive is None else f"taken as {self.positive_name}"
            return f"No {self.unit} can be {what} with at most {share} errors, {sure}"
        count = f"{self.num_approved:,} of {plural(self.nodes, self.unit)}"
        if self.positive is None:
            return f"{count} can be decided automatically with at most {share} errors, {sure}"
        members = f"; that finds {self.recall.text()} of the class" if self.recall is not None else ""
        precision = f"{100 * (1 - self.max_error):g} %"
        return f"{count} can be taken as {self.positive_name} with a precision of at least {precision}, {sure}{members}"

    def _left(self) -> str:
        if self.positive is not None:
            return ""
        rest = self.num_review
        return f"{rest:,} {'needs' if rest == 1 else 'need'} a person" if rest else "none needs a person"

    def _more(self) -> str:
        if self.plan is None:
            return ""
        effect = f"raise {self.num_approved:,} to about" if self.num_approved else "decide about"
        return f"{self.plan.labels:,} more random labels would {effect} {self.plan.nodes:,}"

    def _standing(self) -> str:
        if self.guaranteed and self.num_approved == 0:
            return ""
        if self.guaranteed:
            return (
                f"This is a guarantee for the {plural(self.nodes, self.unit)} to decide, if the {self._drawn()} ones "
                f"were drawn {self._how()}, as you stated."
            )
        if self.backtest:
            return f"This is a backtest: these {self.unit}s have labels already."
        return f"This is an estimate: {NOT_RANDOM}."

    def _evidence(self, others: bool = True) -> str:
        """The labels that carry the promise, and those that do not."""
        flagged = "flagged " if self.bound == "random arm" else ""
        beside = f" ({self.others:,} more chose where to search)" if others and self.others else ""
        return f"{self.labels:,} {flagged}label{'s' * (self.labels != 1)}{beside}"

    def _drawn(self) -> str:
        return f"{self.labels:,} {'flagged' if self.bound == 'random arm' else 'labelled'}"

    def _how(self) -> str:
        return "with the given chances" if self.bound == "known chances" else "at random"

    @property
    def summary(self) -> list[tuple[str, str]]:
        """Headings and texts, the most useful first, for a terminal or a notebook."""
        share, what = f"at most {100 * self.max_error:g} % errors", "decided automatically"
        if self.positive is not None:
            share, what = f"precision at least {100 * (1 - self.max_error):g} %", f"taken as {self.positive_name}"
        count = f"{self.num_approved:,} of {plural(self.nodes, self.unit)} ({100 * self.coverage:.0f} %)"
        above = "" if self.threshold is None else f", from a score of {self.threshold:.3g}"
        seen = f"{plural(self.errors_seen, 'error')} in the {plural(self.labelled_above, 'label')} above the threshold"
        rows = [
            ("Without review", f"{count} can be {what}{above}"),
            *(("Warning", line) for line in self.warnings),
            ("Promise", f"{share}, {self.promise.certainty_text}"),
            ("Evidence", f"{self._evidence()}" + (f"; {seen}" if self.num_approved else "")),
            ("Review", f"{plural(self.num_review, self.unit)} left for a person"),
        ]
        if self.recall is not None and self.num_approved:
            rows.append(("Recall", f"{self.recall.text()} of {self.positive_name}"))
        most_missed = sorted(self.classes, key=lambda row: -row.missed)[:CLASSES_SHOWN]
        for row in (row for row in self.classes if row in most_missed):
            missed = f"{row.missed:,.0f} of about {row.expected:,.0f} members decided as another class"
            rows.append((row.name[:1].upper() + row.name[1:], f"{row.decided:,} decided as it; {missed}"))
        if len(self.classes) > CLASSES_SHOWN:
            rows.append(("Other classes", f"{len(self.classes) - CLASSES_SHOWN} lose fewer members; see to_dict()"))
        if self.plan is not None:
            rows.append(("More labels", self._more()))
        if self.guaranteed:
            drawn = "are a random sample" if self.bound == "random draw" else f"were drawn {self._how()}"
            standing = f"guarantee, if the {self._evidence(False)} {drawn}, as you stated"
        elif self.backtest:
            standing = f"backtest: these {self.unit}s have labels already"
        else:
            standing = "estimate: nobody stated that the labels are a random sample (random_draw)"
        return [*rows, ("Standing", standing)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; node lists are in ``approved`` and ``review``."""
        return {
            "schema": SCHEMA,
            "sentence": self.sentence,
            "guarantee": self.guaranteed,
            "promise": asdict(self.promise),
            "threshold": self.threshold,
            "approved": self.num_approved,
            "review": self.num_review,
            "nodes": self.nodes,
            "coverage": self.coverage,
            "errors_at_most": self.errors_at_most,
            "labels": self.labels,
            "labelled_above": self.labelled_above,
            "errors_seen": self.errors_seen,
            "num_classes": self.num_classes,
            "positive": self.positive,
            "positive_name": self.positive_name,
            "plan": None if self.plan is None else asdict(self.plan),
            "recall": None if self.recall is None else asdict(self.recall),
            "classes": [asdict(row) for row in self.classes],
            "warnings": list(self.warnings),
            "backtest": self.backtest,
            "held": self.held,
            "unit": self.unit,
            "others": self.others,
            "bound": self.bound,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Decision:
        """Restore a decision from `to_dict`, without its masks."""
        if record.get("schema") != SCHEMA:
            raise ValueError(f"Expected a decision of schema {SCHEMA}, got {record.get('schema')!r}.")
        empty, plan, recall = torch.zeros(0, dtype=torch.bool), record["plan"], record["recall"]
        plain = ("labels", "labelled_above", "errors_seen", "num_classes", "positive", "positive_name")
        return cls(
            promise=Promise(**record["promise"]),
            threshold=record["threshold"],
            approved=empty,
            review=empty,
            num_approved=record["approved"],
            num_review=record["review"],
            plan=None if plan is None else Plan(**plan),
            recall=None if recall is None else Interval(**recall),
            classes=tuple(ClassOutcome(**row) for row in record["classes"]),
            warnings=tuple(record["warnings"]),
            **{key: record[key] for key in (*plain, "backtest", "held", "unit")},
            **{key: record[key] for key in ("others", "bound") if key in record},
        )

    def save(self, path: str | Path) -> Path:
        """Write the decision as JSON."""
        return write_atomically(path, json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Decision:
        """Read a decision that `save` or ``graphcal decide`` wrote."""
        with file_errors(path, "a decision, as graphcal decide writes it"):
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))


def score_of(log_probs: Tensor, positive: int | None) -> Tensor:
    """The score (N,) by which nodes are approved: confidence, or the probability of the class ``positive``."""
    if positive is None:
        return confidence(log_probs)[0]
    return log_probs[:, positive].double().exp().clamp(max=1)


def class_number(positive: int | str | None, num_classes: int, names: Sequence[str] | None) -> int | None:
    """Number of the class that is named by number or name."""
    if positive is None:
        return None
    classes = [str(k) for k in range(num_classes)] if names is None else list(names)
    if isinstance(positive, str):
        if positive not in classes:
            raise ValueError(f"unknown class {positive!r}; the classes are {', '.join(classes)}")
        return classes.index(positive)
    if not 0 <= positive < num_classes:
        raise ValueError(f"unknown class {positive}; the classes are 0..{num_classes - 1}")
    return positive


def class_name(target: int, names: Sequence[str] | None) -> str:
    """Name of a class in a sentence."""
    name = str(target) if names is None else str(names[target])
    return f"class {name}" if name.isdigit() else name
