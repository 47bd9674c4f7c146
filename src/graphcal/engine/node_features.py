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
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcal.core import Outputs
from graphcal.graphs import structure


def node_features(out: Outputs) -> Tensor:
    """The features of every node, in the order above."""  # (N, 8)
    graph, classes, own = structure(out.graph), out.num_classes, out.pred[:, None]
    probs = out.logits.softmax(-1)
    conf = probs.amax(-1, keepdim=True)
    hard = torch.zeros_like(probs).scatter_(1, own, 1.0)  # (N, C) predictions, one-hot
    one_hop = graph.neighbour_mean(hard)
    around = graph.neighbour_mean(torch.cat([one_hop, probs, conf], -1))
    two_hop, mean_probs, mean_conf = torch.split(around, [classes, classes, 1], -1)
    columns = [
        graph.next_to_training[:, None],
        one_hop.gather(1, own),
        two_hop.gather(1, own),
        graph.degree[:, None].to(probs).log1p(),
        mean_probs.gather(1, own),
        conf - mean_conf,
        torch.special.entr(mean_probs).sum(-1, keepdim=True),
        out.logits.norm(dim=-1, keepdim=True),
    ]
    return torch.cat([column.double() for column in columns], -1)
