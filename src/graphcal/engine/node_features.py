"""What a graph tells about a node's confidence without any label: eight features of every node.

    near_train   1 next to the training set (V_F of the SCAR paper), else 0
    agree        share of neighbours with the node's predicted class
    agree_2hop   the same over walks of length two
    log_degree   log(1 + degree)
    support      the neighbours' mean probability of the node's predicted class
    conf_gap     own confidence minus the neighbours' mean confidence
    entropy      of the neighbours' mean prediction
    logit_norm   length of the node's own logit vector

An isolated node is its own neighbourhood. All are functions of the logits and the edges; none reads a label.

What a neighbourhood says about the classes is a direction in logit space: the centred log of a mean distribution (`log_opinion`),
over neighbours or over walks of length two without those that return, which would bring a node's own opinion or label back to it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcal.core import Outputs
from graphcal.graphs import Structure, structure

SMALLEST_OPINION = 1e-6  # of a neighbourhood about a class: its log must be finite
LABEL_SMOOTHING = 1.0  # labels of each class that are counted without having been seen


def node_features(out: Outputs) -> Tensor:
    """The features of every node, in the order above."""  # (N, 8)
    graph, classes = structure(out.graph), out.num_classes
    probs = out.logits.softmax(-1)
    conf = probs.amax(-1, keepdim=True)
    hard = torch.zeros_like(probs).scatter_(1, out.pred[:, None], 1.0)  # (N, C) predictions, one-hot
    one_hop = graph.neighbour_mean(hard)
    around = graph.neighbour_mean(torch.cat([one_hop, probs, conf], -1))
    two_hop, mean_probs, mean_conf = torch.split(around, [classes, classes, 1], -1)
    return feature_rows(out.logits, one_hop, two_hop, mean_probs, mean_conf, graph.degree, graph.next_to_training)


def feature_rows(
    logits: Tensor,
    one_hop: Tensor,
    two_hop: Tensor,
    mean_probs: Tensor,
    mean_conf: Tensor,
    degree: Tensor,
    near: Tensor,
) -> Tensor:
    """The features of nodes (n, 8) from means over their neighbours: of one-hot predictions and of those means (n, C), of
    probabilities (n, C) and of confidences (n, 1)."""
    own, conf = logits.argmax(-1)[:, None], logits.softmax(-1).amax(-1, keepdim=True)
    columns = [
        near[:, None],
        one_hop.gather(1, own),
        two_hop.gather(1, own),
        degree[:, None].to(logits).log1p(),
        mean_probs.gather(1, own),
        conf - mean_conf,
        torch.special.entr(mean_probs).sum(-1, keepdim=True),
        logits.norm(dim=-1, keepdim=True),
    ]
    return torch.cat([column.double() for column in columns], -1)


def walk_means(graph: Structure, values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of values (N, D) over the neighbours and over walks of length two that do not return; 0 where there are none."""
    one, two = (mean_of(x) for x in walk_sums(graph, torch.cat([values, torch.ones_like(values[:, :1])], -1)))
    return one, two


def mean_of(sums: Tensor) -> Tensor:
    """Means (n, D) of sums (n, D + 1) whose last column counts what was summed; 0 over nothing."""
    return sums[:, :-1] / sums[:, -1:].clamp(min=1)


def walk_sums(graph: Structure, values: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of values (N, D) over the neighbours and over walks of length two that do not return to the node."""
    one = graph.neighbour_sum(values)
    return one, graph.neighbour_sum(one) - graph.returning[:, None].to(values) * values


def log_opinion(probs: Tensor) -> Tensor:
    """Centred log of mean probabilities (N, C): a direction in logit space; 0 where the mean is over nothing."""
    known = probs.sum(-1, keepdim=True) > 0
    log = probs.clamp(min=SMALLEST_OPINION).log()
    return torch.where(known, log - log.mean(-1, keepdim=True), torch.zeros_like(log))


def label_opinion(graph: Structure, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Centred log of smoothed counts of the labels y (N,), -1 where unknown, one and two steps away; never a node's own."""
    known = torch.zeros(len(y), classes, dtype=torch.double, device=y.device)
    seen = y >= 0
    known[seen, y[seen]] = 1.0
    one, two = walk_sums(graph, known)
    return log_opinion(one + LABEL_SMOOTHING), log_opinion(two + LABEL_SMOOTHING)
