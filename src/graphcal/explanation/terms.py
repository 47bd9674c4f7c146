"""An explanation as a value: the terms that add up to a node's lead, and the sentence they make.

The lead of the predicted class p over the runner-up r is what confidence is made of (see `graphcal.explanation.nodes`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class ClassTerms:
    """One class's logit and what it is made of: intra + inter + bias + residual = logit."""

    label: int
    logit: float
    intra: float  # similarity to the training nodes of this class
    inter: float  # minus the similarity to those of other classes
    bias: float
    residual: float  # what the training nodes do not explain
    prob: float
    calibrated: float | None  # probability after calibration
    cosine: float  # of the node's representation and the class centroid


@dataclass(frozen=True)
class Push:
    """One training node's share in the lead of the predicted class over the runner-up."""

    node: int
    label: int
    push: float  # logits
    weight: float  # a_up - a_ur
    cosine: float  # of the two representations
    hops: int  # distance in the graph; -1: no path


@dataclass(frozen=True)
class Explanation:
    """One node's confidence, explained; ``to_dict()`` is plain JSON."""

    node: int
    pred: int
    runner_up: int
    confidence: float
    rank: float  # share of all nodes that are less confident
    calibrated: float | None  # probability of the predicted class after calibration
    calibrated_lead: float | None  # lead over the runner-up after calibration
    calibration: str | None
    hops: int  # from the nearest training node; 0: is one, -1: no path
    degree: int
    agreement: float  # share of neighbours with the same predicted class
    classes: tuple[ClassTerms, ...]
    pushes_for: tuple[Push, ...]
    pushes_against: tuple[Push, ...]
    by_class: dict[int, float] = field(hash=False)  # sum of the pushes of each class's training nodes
    effective_decay: float
    correction: float  # how far the coefficients are from the paper's, as a share
    unexplained: float  # share of this node's logits, as seen by softmax, that is residual

    @property
    def lead(self) -> float:
        return self.classes[self.pred].logit - self.classes[self.runner_up].logit

    @property
    def lead_terms(self) -> list[tuple[str, float]]:
        """Named parts that add up to the lead."""
        rest = sum(value for label, value in self.by_class.items() if label not in (self.pred, self.runner_up))
        return [
            (f"training nodes of class {self.pred} (predicted)", self.by_class.get(self.pred, 0.0)),
            (f"training nodes of class {self.runner_up} (runner-up)", self.by_class.get(self.runner_up, 0.0)),
            ("training nodes of other classes", rest),
            ("bias", self.classes[self.pred].bias - self.classes[self.runner_up].bias),
            ("not explained", self.classes[self.pred].residual - self.classes[self.runner_up].residual),
        ]

    @property
    def sentence(self) -> str:
        """The explanation in words."""
        (_, own), (_, other), (_, rest), (_, bias), _ = self.lead_terms
        text = (
            f"Node {self.node} is class {self.pred} with confidence {self.confidence:.2f}, more than {self.rank:.0%} of all "
            f"nodes. {_place(self.hops)} It leads class {self.runner_up} by {self.lead:.2f} logits: training nodes of its own "
            f"class give {own:+.2f}, those of class {self.runner_up} {other:+.2f}, all others {rest:+.2f}, the bias {bias:+.2f}."
        )
        if self.calibrated is not None:
            verb = "raises" if self.calibrated > self.confidence else "lowers"
            text += f" Calibration {verb} the confidence to {self.calibrated:.2f}."
        return text

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        record["by_class"] = {str(label): value for label, value in self.by_class.items()}
        return {**record, "lead": self.lead, "lead_terms": dict(self.lead_terms), "sentence": self.sentence}


def _place(hops: int) -> str:
    if hops == 0:
        return "It is a training node."
    if hops < 0:
        return "No training node can be reached from it."
    return "It is next to a training node." if hops == 1 else f"The nearest training node is {hops} steps away."
