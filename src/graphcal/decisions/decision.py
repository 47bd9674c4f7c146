"""A decision as a value: which nodes may be acted on alone, which need a person, and what is promised about that, in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any, Literal

from torch import Tensor

Promise = Literal["pool", "future", "average"]

NOT_RANDOM = (
    "nobody has stated that the certification nodes were drawn at random; investigated cases and splits in file order "
    "are not"
)


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its interval."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}

    def text(self) -> str:
        return f"{100 * self.value:.0f} % ({100 * self.low:.0f} to {100 * self.high:.0f})"


@dataclass(frozen=True)
class Plan:
    """What more labels, drawn at random, would do: an estimate from the error rates seen so far."""

    labels: int  # more of them
    nodes: int  # decided then


@dataclass(frozen=True)
class ClassOutcome:
    """What a decision means for the members of one class, by their probabilities."""

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
        return (
            f"{self.name}: {self.decided:,} nodes are decided as it; of about {self.expected:,.0f} members "
            f"{self.missed:,.0f}{lost} are decided as something else"
        )


@dataclass(frozen=True, eq=False)
class Decision:
    """Which nodes may be decided automatically, and the promise that goes with it.

    ``errors_at_most`` is a number of nodes: with ``certainty`` at most so many of the approved nodes are wrong. With the
    promise "average" it is what holds on average over draws, with "future" the share ``max_error`` is promised of nodes yet
    to come. Certification nodes are neither approved nor sent to a person: their labels are known.

    >>> import torch, graphcal as gc
    >>> probs = torch.rand(2000, generator=torch.Generator().manual_seed(0)) / 2 + 0.5
    >>> y = (torch.rand(2000, generator=torch.Generator().manual_seed(1)) > probs).long()  # honest: class 0 with that chance
    >>> log_probs, certify = torch.stack([probs, 1 - probs], 1).log(), torch.arange(2000) < 500
    >>> decision = gc.decide(log_probs, y, certify=certify, max_error=0.2, random_draw=True)
    >>> decision.nodes, int(decision.approved.sum()) == decision.num_approved, decision.guaranteed
    (1500, True, True)
    >>> decision.errors_at_most == int(0.2 * decision.num_approved), 0 < decision.coverage < 1
    (True, True)
    >>> decision.sentence.partition(" nodes ")[2][:59], decision.to_dict()["labels"]
    ('can be decided automatically with at most 20 % errors, 95 %', 500)
    """

    approved: Tensor = field(repr=False)  # (N,) bool
    review: Tensor = field(repr=False)  # (N,) bool: unlabelled nodes of the pool that need a person
    threshold: float | None  # smallest confidence that is approved; None when no node is
    max_error: float
    certainty: float
    promise: Promise
    random_draw: bool
    labels: int  # certification nodes
    labelled_above: int  # of them at or above the threshold
    errors_seen: int  # wrong ones among those
    plan: Plan | None = None
    positive: str | None = None  # the class that was selected, where one was named
    recall: Interval | None = None  # share of that class that is approved
    classes: tuple[ClassOutcome, ...] = ()  # for two classes, or rare ones: what is decided and missed
    warnings: tuple[str, ...] = ()  # read these before acting
    backtest: bool = False  # the nodes "to decide" have labels already

    @property
    def nodes(self) -> int:
        """Nodes that were to be decided."""
        return self.num_approved + int(self.review.sum())

    @property
    def num_approved(self) -> int:
        """Nodes that may be decided alone."""
        return int(self.approved.sum())

    @property
    def coverage(self) -> float:
        """Share of the unlabelled nodes of the pool that is approved."""
        return self.num_approved / self.nodes

    @property
    def errors_at_most(self) -> int:
        """So many approved nodes may be wrong, and with the stated certainty no more are."""
        return int(self.max_error * self.num_approved + 1e-9)

    @property
    def guaranteed(self) -> bool:
        """Whether the user stated a random draw, the data do not contradict it, and there are nodes yet to decide."""
        return self.random_draw and not self.backtest

    @property
    def sentence(self) -> str:
        """The decision in words, promise and assumption included."""
        parts = [self._decided(), self._left()]
        if self.plan is not None:
            verb = "raise" if self.num_approved else "decide"
            now = f"{self.num_approved:,} to " if self.num_approved else ""
            parts.append(f"{self.plan.labels:,} more random labels would {verb} {now}about {self.plan.nodes:,}")
        return f"{'; '.join(part for part in parts if part)}. {self._standing()}".rstrip()

    def _decided(self) -> str:
        share, sure = f"{100 * self.max_error:g} %", f"{100 * self.certainty:g} % certain"
        if self.promise == "average":
            sure = "on average over draws, not in every single one"
        elif self.promise == "future":
            sure += " for this and for future nodes of the same source"
        if self.num_approved == 0:
            what = (
                "No node can be decided automatically"
                if self.positive is None
                else f"No node can be taken as {self.positive}"
            )
            return f"{what} with at most {share} errors, {sure}"
        count = f"{self.num_approved:,} of {self.nodes:,} nodes"
        if self.positive is None:
            return f"{count} can be decided automatically with at most {share} errors, {sure}"
        found = f"; that finds {self.recall.text()} of the class" if self.recall is not None else ""
        precision = f"{100 * (1 - self.max_error):g} %"
        return f"{count} can be taken as {self.positive} with a precision of at least {precision}, {sure}{found}"

    def _left(self) -> str:
        if self.positive is not None:
            return ""
        rest = int(self.review.sum())
        return f"{rest:,} need a person" if rest else "none needs a person"

    def _standing(self) -> str:
        if self.guaranteed and self.num_approved == 0:
            return ""
        if self.guaranteed:
            return (
                f"This is a guarantee for the {self.nodes:,} nodes to decide, if the {self.labels:,} labelled nodes were drawn "
                "at random, as you stated."
            )
        if self.backtest:
            return "This is a backtest: these nodes have labels already."
        return f"This is an estimate: {NOT_RANDOM}."

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; node lists are in ``approved`` and ``review``."""
        return {
            "sentence": self.sentence,
            "guarantee": self.guaranteed,
            "promise": self.promise,
            "max_error": self.max_error,
            "certainty": self.certainty,
            "nodes": self.nodes,
            "approved": self.num_approved,
            "review": int(self.review.sum()),
            "coverage": self.coverage,
            "threshold": self.threshold,
            "errors_at_most": self.errors_at_most,
            "labels": self.labels,
            "labelled_above": self.labelled_above,
            "errors_seen": self.errors_seen,
            "plan": None if self.plan is None else {"labels": self.plan.labels, "nodes": self.plan.nodes},
            "positive": self.positive,
            "recall": None if self.recall is None else self.recall.to_dict(),
            "classes": [asdict(row) for row in self.classes],
            "warnings": list(self.warnings),
        }

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.sentence)}</p>"
