"""Eq. 8 of the SCAR paper (arXiv:2505.11335), read node by node: why a node has its confidence, as a value and as a sentence.

The lead of the predicted class p over the runner-up r, which is what confidence is made of, is a sum over the training nodes u,

    z_p - z_r = sum_u (a_up - a_ur) h_u^T h  +  (b_p - b_r)  +  residual

with the coefficients of `graphcal.lab.theory.decompose`. So an explanation names the training nodes that push most for and
against, sums them by class, adds where the node sits in the graph, and what a calibration made of it. The decomposition, with its
pseudo-inverse, and the pass of the calibration are made once for all nodes that are asked for.

Only labels of training nodes are read. Works for any backbone whose final layer and representation are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from graphcal.core import Calibration, Outputs
from graphcal.graphs import class_name, hops_from, neighbour_agreement, node_name, structure
from graphcal.lab.theory import Decomposition, decompose, final_and_hidden


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
    name: str  # of the node in the graph's own files; its number where it has none


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
    name: str  # of the node in the graph's own files; its number where it has none
    class_names: tuple[str, ...]  # likewise

    @property
    def lead(self) -> float:
        return self.classes[self.pred].logit - self.classes[self.runner_up].logit

    @property
    def lead_terms(self) -> list[tuple[str, float]]:
        """Named parts that add up to the lead."""
        rest = sum(value for label, value in self.by_class.items() if label not in (self.pred, self.runner_up))
        return [
            (f"training nodes of class {self.class_names[self.pred]} (predicted)", self.by_class.get(self.pred, 0.0)),
            (
                f"training nodes of class {self.class_names[self.runner_up]} (runner-up)",
                self.by_class.get(self.runner_up, 0.0),
            ),
            ("training nodes of other classes", rest),
            ("bias", self.classes[self.pred].bias - self.classes[self.runner_up].bias),
            ("not explained", self.classes[self.pred].residual - self.classes[self.runner_up].residual),
        ]

    @property
    def sentence(self) -> str:
        """The explanation in words."""
        (_, same_class), (_, other), (_, rest), (_, bias), _ = self.lead_terms
        predicted, second = self.class_names[self.pred], self.class_names[self.runner_up]
        text = (
            f"Node {self.name} is class {predicted} with confidence {self.confidence:.2f}, more than {self.rank:.0%} of all "
            f"nodes. {_place(self.hops)} It leads class {second} by {self.lead:.2f} logits: training nodes of its own "
            f"class give {same_class:+.2f}, those of class {second} {other:+.2f}, all others {rest:+.2f}, the bias {bias:+.2f}."
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


def explain(
    out: Outputs,
    node: int,
    calibration: Calibration | None = None,
    weight_decay: float | None = None,
    pushes: int = 5,
) -> Explanation:
    """Explain the confidence of node ``node``, and what ``calibration`` changed.

    ``weight_decay``: the final layer's; None takes the effective one. ``pushes``: how many training nodes to name on each side.

    >>> import graphcal
    >>> data = graphcal.lab.synthetic(500, seed=0)
    >>> out = graphcal.lab.train(data, training=graphcal.lab.Training(epochs=5), seeds=1)[0].outputs
    >>> explanation = graphcal.lab.explain(out, 7, graphcal.TemperatureScaling().fit(out, on=data.val_mask))
    >>> explanation.pred == int(out.pred[7]), explanation.calibrated > explanation.confidence, len(explanation.pushes_for)
    (True, True, 5)
    """
    return explain_many(out, [node], calibration, weight_decay, pushes)[0]


def explain_many(
    out: Outputs,
    nodes: Sequence[int],
    calibration: Calibration | None = None,
    weight_decay: float | None = None,
    pushes: int = 5,
) -> list[Explanation]:
    """`explain` for several nodes: one decomposition and one pass of the calibration for all of them."""
    for node in nodes:
        if not 0 <= node < out.num_nodes:
            raise ValueError(f"node {node} does not exist: the graph has nodes 0..{out.num_nodes - 1}")
    parts = decompose(out, torch.tensor(list(nodes), dtype=torch.long), weight_decay)
    facts = structure(out.graph)
    probs = out.logits.double().softmax(-1)  # (N, C)
    conf, agreement = probs.max(-1).values, neighbour_agreement(out.pred, facts)
    with torch.no_grad():
        after = None if calibration is None else calibration(out).double()  # (N, C)
    labels = out.graph.y[parts.train_nodes]
    explanations = []
    for row, node in enumerate(nodes):
        pred, runner_up = out.logits[node].topk(2).indices.tolist()
        weight = parts.coefficients[:, pred] - parts.coefficients[:, runner_up]  # (n,)
        shares = parts.similarity[row] * weight  # (n,)
        linear = out.logits[node].double() - parts.bias
        node_log_probs = None if after is None else after[node]  # (C,)
        pushing = _pushes(out, node, parts, shares, weight, pushes)
        explanations.append(
            Explanation(
                node=node,
                pred=pred,
                runner_up=runner_up,
                confidence=float(conf[node]),
                rank=float((conf < conf[node]).double().mean()),
                calibrated=None if node_log_probs is None else float(node_log_probs[pred].exp()),
                calibrated_lead=None
                if node_log_probs is None
                else float(node_log_probs[pred] - node_log_probs[runner_up]),
                calibration=None if calibration is None else repr(calibration),
                hops=int(facts.hops[node]),
                degree=int(facts.degree[node]),
                agreement=float(agreement[node]),
                classes=_class_terms(out, node, row, parts, probs[node], node_log_probs),
                pushes_for=tuple(p for p in pushing if p.push > 0)[:pushes],
                pushes_against=tuple(p for p in reversed(pushing) if p.push < 0)[:pushes],
                by_class={int(c): float(shares[labels == c].sum()) for c in labels.unique()},
                effective_decay=parts.effective_decay,
                correction=parts.correction,
                unexplained=float(_spread(parts.residual[row]) / _spread(linear).clamp(min=1e-300)),
                name=node_name(out.graph, node),
                class_names=tuple(class_name(out.graph, c) for c in range(out.num_classes)),
            )
        )
    return explanations


def _spread(values: Tensor) -> Tensor:
    """Softmax does not see what is common to all classes."""
    return (values - values.mean()).square().sum().sqrt()


def _class_terms(
    out: Outputs, node: int, row: int, parts: Decomposition, probs: Tensor, after: Tensor | None
) -> tuple[ClassTerms, ...]:
    final, hidden = final_and_hidden(out)
    cosine = cosine_similarity(final.weight, hidden[node][None])  # (C,)
    return tuple(
        ClassTerms(
            label,
            float(out.logits[node, label]),
            float(parts.intra[row, label]),
            float(parts.inter[row, label]),
            float(parts.bias[label]),
            float(parts.residual[row, label]),
            float(probs[label]),
            None if after is None else float(after[label].exp()),
            float(cosine[label]),
        )
        for label in range(out.num_classes)
    )


def _pushes(out: Outputs, node: int, parts: Decomposition, shares: Tensor, weight: Tensor, most: int) -> list[Push]:
    """The ``most`` training nodes on either side, from the strongest for the predicted class to the strongest against it."""
    _, hidden = final_and_hidden(out)
    order = shares.argsort(descending=True)
    selected = order if len(order) <= 2 * most else torch.cat([order[:most], order[-most:]])
    train_nodes = parts.train_nodes[selected]
    start = torch.zeros(out.num_nodes, dtype=torch.bool)
    start[node] = True
    hops = hops_from(start, structure(out.graph).edge_index)[train_nodes]
    cosine = cosine_similarity(hidden[train_nodes], hidden[node][None])
    columns = (train_nodes, out.graph.y[train_nodes], shares[selected], weight[selected], cosine, hops)
    names = [node_name(out.graph, n) for n in train_nodes.tolist()]
    return [Push(*row) for row in zip(*(column.tolist() for column in columns), names)]
