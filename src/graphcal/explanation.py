"""Why does this node have this confidence? Eq. 8 of the SCAR paper (arXiv:2505.11335), read for one node.

The lead of the predicted class p over the runner-up r is what confidence is made of. It is a sum over the training nodes u,

    z_p - z_r = sum_u (a_up - a_ur) h_u^T h  +  (b_p - b_r)  +  residual

with the coefficients of `graphcal.theory.decompose`. So the explanation names the training nodes that push most for and against,
sums them by class, adds where the node sits in the graph, and what a calibration made of it.

Only labels of training nodes are read. Works for any backbone whose final layer and representation are known.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs
from graphcal.graphs import hops_from, neighbour_agreement, structure
from graphcal.theory import Decomposition, decompose
from graphcal.theory.steps import known


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
    conf: float
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
            f"Node {self.node} is class {self.pred} with confidence {self.conf:.2f}, more than {self.rank:.0%} of all nodes. "
            f"{_place(self.hops)} It leads class {self.runner_up} by {self.lead:.2f} logits: training nodes of its own class "
            f"give {own:+.2f}, those of class {self.runner_up} {other:+.2f}, all others {rest:+.2f}, the bias {bias:+.2f}."
        )
        if self.calibrated is not None:
            verb = "raises" if self.calibrated > self.conf else "lowers"
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


def explain(
    out: Outputs,
    node: int,
    calibration: Calibration | None = None,
    weight_decay: float | None = None,
    pushes: int = 5,
) -> Explanation:
    """Why node ``node`` has the confidence it has, and what ``calibration`` changed.

    ``weight_decay``: the final layer's; None takes the effective one. ``pushes``: how many training nodes to name on each side.
    """
    if not 0 <= node < out.num_nodes:
        raise ValueError(f"node {node} does not exist: the graph has nodes 0..{out.num_nodes - 1}")
    parts = decompose(out, torch.tensor([node]), weight_decay)
    facts = structure(out.graph)
    probs = out.logits.double().softmax(-1)
    after = None if calibration is None else calibration(out).detach()[node].double()  # (C,) log-probabilities
    pred, runner_up = out.logits[node].topk(2).indices.tolist()
    conf = probs.max(-1).values
    shares = parts.similarity[0] * (parts.coefficients[:, pred] - parts.coefficients[:, runner_up])  # (n,)
    labels = out.graph.y[parts.train_nodes]
    residual, linear = parts.residual[0], out.logits[node].double() - parts.bias
    return Explanation(
        node=node,
        pred=pred,
        runner_up=runner_up,
        conf=float(conf[node]),
        rank=float((conf < conf[node]).double().mean()),
        calibrated=None if after is None else float(after[pred].exp()),
        calibrated_lead=None if after is None else float(after[pred] - after[runner_up]),
        calibration=None if calibration is None else repr(calibration),
        hops=int(facts.hops[node]),
        degree=int(facts.degree[node]),
        agreement=float(neighbour_agreement(out.pred, facts)[node]),
        classes=_class_terms(out, node, parts, probs[node], after),
        pushes_for=_pushes(out, node, parts, shares, shares.argsort(descending=True)[:pushes], pred, runner_up),
        pushes_against=_pushes(out, node, parts, shares, shares.argsort()[:pushes], pred, runner_up),
        by_class={int(c): float(shares[labels == c].sum()) for c in labels.unique()},
        effective_decay=parts.effective_decay,
        correction=parts.correction,
        unexplained=float((residual - residual.mean()).norm() / (linear - linear.mean()).norm().clamp(min=1e-300)),
    )


def _class_terms(
    out: Outputs, node: int, parts: Decomposition, probs: Tensor, after: Tensor | None
) -> tuple[ClassTerms, ...]:
    final, hidden = known(out)
    assert final.weight is not None
    cosine = torch.cosine_similarity(final.weight, hidden[node][None])  # (C,)
    return tuple(
        ClassTerms(
            label,
            float(out.logits[node, label]),
            float(parts.intra[0, label]),
            float(parts.inter[0, label]),
            float(parts.bias[label]),
            float(parts.residual[0, label]),
            float(probs[label]),
            None if after is None else float(after[label].exp()),
            float(cosine[label]),
        )
        for label in range(out.num_classes)
    )


def _pushes(
    out: Outputs, node: int, parts: Decomposition, shares: Tensor, chosen: Tensor, pred: int, runner_up: int
) -> tuple[Push, ...]:
    """The chosen training nodes; those whose share has the wrong sign (or is nothing) are not pushing this way."""
    _, hidden = known(out)
    start = torch.zeros(out.num_nodes, dtype=torch.bool)
    start[node] = True
    hops = hops_from(start, structure(out.graph).edge_index)
    weight = parts.coefficients[:, pred] - parts.coefficients[:, runner_up]
    sign = shares[chosen[0]].sign()
    found = []
    for u in chosen[(shares[chosen].sign() == sign) & (shares[chosen] != 0)].tolist():
        train_node = int(parts.train_nodes[u])
        cosine = torch.cosine_similarity(hidden[train_node], hidden[node], dim=0)
        label = int(out.graph.y[train_node])
        found.append(Push(train_node, label, float(shares[u]), float(weight[u]), float(cosine), int(hops[train_node])))
    return tuple(found)
