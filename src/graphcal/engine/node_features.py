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

from graphcal.core import Outputs
from graphcal.engine.rows import rows_of
from graphcal.graphs import structure

FACTS = ("near", "agree", "agree2", "degree", "support", "lead", "disorder", "evidence")


def node_facts(out: Outputs) -> Tensor:
    """The facts of every node, one a column, in the order of `FACTS`."""  # (N, 8)
    graph = structure(out.graph)
    own = out.pred[:, None]
    pred = torch.zeros_like(out.logits).scatter_(1, own, 1.0)  # (N, C)
    probs = out.logits.softmax(-1)
    conf = probs.amax(-1, keepdim=True)
    one_hop = graph.neighbour_mean(pred)
    two_hops, around, mean_conf = graph.neighbour_mean(torch.cat([one_hop, probs, conf], -1)).split(
        [out.num_classes, out.num_classes, 1], -1
    )
    agree, agree2 = one_hop.gather(1, own), two_hops.gather(1, own)
    return _columns(out, slice(None), agree, agree2, conf - mean_conf, around)


def node_facts_of(out: Outputs, nodes: Tensor) -> Tensor:
    """The rows ``nodes`` of `node_facts`, for the price of one sparse product and of the edges of these nodes."""  # (n, 8)
    graph = structure(out.graph)
    everyone = torch.zeros_like(out.logits).scatter_(1, out.pred[:, None], 1.0)
    next_door = graph.neighbours.to(out.logits.dtype) @ everyone  # (N, C): how many neighbours have each class
    row, col, _ = rows_of(graph.neighbours, nodes)
    alone = (graph.degree[nodes] == 0).nonzero().flatten()
    row, col = torch.cat([row, alone]), torch.cat([col, nodes[alone]])  # an isolated node is its own neighbourhood
    own = out.pred[nodes]
    asked, degree = own[row], graph.degree[col]
    same = (out.pred[col] == asked).to(out.logits)
    second = torch.where(degree > 0, next_door[col, asked] / degree.clamp(min=1), same)
    probs = softmax_of(out.logits[col])
    said = torch.cat([same[:, None], second[:, None], probs.amax(-1, keepdim=True), probs], -1)  # (edges, 3 + C)
    mean = said.new_zeros(len(nodes), said.shape[1]).index_add_(0, row, said)
    mean /= torch.bincount(row, minlength=len(nodes))[:, None]
    conf = softmax_of(out.logits[nodes]).amax(-1, keepdim=True)
    return _columns(out, nodes, mean[:, 0:1], mean[:, 1:2], conf - mean[:, 2:3], mean[:, 3:])


def _columns(out: Outputs, of: Tensor | slice, agree: Tensor, agree2: Tensor, lead: Tensor, around: Tensor) -> Tensor:
    """Everything in the order of `FACTS`; around (n, C): the neighbours' mean prediction."""
    graph = structure(out.graph)
    near, degree = graph.next_to_training[of].to(around), graph.degree[of].to(around).log1p()
    support = around.gather(1, out.pred[of][:, None])
    disorder = torch.special.entr(around).sum(-1, keepdim=True)
    evidence = out.logits[of].norm(dim=-1, keepdim=True)
    return torch.cat([near[:, None], agree, agree2, degree[:, None], support, lead, disorder, evidence], -1).double()


def softmax_of(logits: Tensor) -> Tensor:
    """softmax over a few classes; torch's own takes several times as long where there are less than a dozen."""
    weight = (logits - logits.amax(-1, keepdim=True)).exp()
    return weight / weight.sum(-1, keepdim=True)


def standardised(facts: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
    """Facts in units of their spread, at most three of them: a node unlike any seen while fitting is not extrapolated to."""
    return ((facts - centre) / spread).clamp(-3, 3)
