"""What a graph tells about a node's confidence without any label: the facts that graph-aware SCAR reads.

    near        1 next to the training set (V_F), else 0
    agree       share of neighbours with the node's predicted class
    agree2      the same over walks of length two
    degree      log(1 + degree)
    support     the neighbours' mean probability of the node's predicted class
    lead        own confidence minus the neighbours' mean confidence
    disorder    entropy of the neighbours' mean prediction
    evidence    length of the node's own logit vector

An isolated node is its own neighbourhood. All are functions of the logits and the edges; none reads a label.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphcal.core import Outputs
from graphcal.graphs import structure

FACTS = ("near", "agree", "agree2", "degree", "support", "lead", "disorder", "evidence")


def node_facts(out: Outputs) -> Tensor:
    """The facts of every node, one a column, in the order of `FACTS`."""  # (N, 8)
    graph = structure(out.graph)
    probs = out.logits.softmax(-1)  # (N, C)
    conf, pred = probs.max(-1).values, out.pred
    own = pred[:, None]
    one_hop = graph.neighbour_mean(one_hot(pred, out.classes).to(probs))
    two_hops = graph.neighbour_mean(one_hop)
    around = graph.neighbour_mean(probs)
    return torch.stack(
        [
            graph.next_to_training.to(probs),
            one_hop.gather(1, own).squeeze(1),
            two_hops.gather(1, own).squeeze(1),
            torch.log1p(graph.degree.to(probs)),
            around.gather(1, own).squeeze(1),
            conf - graph.neighbour_mean(conf),
            torch.special.entr(around).sum(-1),
            out.logits.norm(dim=-1),
        ],
        -1,
    ).double()


def standardised(facts: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
    """Facts in units of their spread, at most three of them: a node unlike any seen while fitting is not extrapolated to."""
    return ((facts - centre) / spread).clamp(-3, 3)
