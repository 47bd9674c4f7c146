"""What a graph can say about a node's logits: facts of nodes that need no label, and the columns of a convex fit.

Eight features of every node (`node_features`), functions of the logits and the edges; an isolated node is its own neighbourhood:

    near_train   1 next to the training set (V_F of the SCAR paper), else 0
    agree        share of neighbours with the node's predicted class
    agree_2hop   the same over walks of length two
    log_degree   log(1 + degree)
    support      the neighbours' mean probability of the node's predicted class
    conf_gap     own confidence minus the neighbours' mean confidence
    entropy      of the neighbours' mean prediction
    logit_norm   length of the node's own logit vector

What a neighbourhood says about the classes is a direction in logit space: the centred log of a mean distribution (`log_opinion`),
over neighbours or over walks of length two without those that return, which would bring a node's own opinion or label back to it.

Columns, the design of `graphcal.methods.graph_scaling` (`Layout`):

    fields   z      centred logits                                     x (1, facts)
             t      centroid logits of SCAR, where the layer is known  x (1, facts)
             v1     centred log of the neighbours' mean probability    x (1, facts)
             v2     the same over walks of length two                  x 1
             l1, l2 labels one and two steps away, where asked for     x 1 each
    own      a bias per class; all logits (C <= 10) or the class's own (C > 10)

Facts are in units of their spread and clamped to what was seen while fitting. A node without neighbours has none of them: they
count as average, and a fact of its own, ``alone``, says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcal.core import Outputs
from graphcal.engine.columns import StructuredColumns, contrast
from graphcal.graphs import Columns, GraphSums, MemorySums, Structure, structure

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


MOST_CLASSES = 10  # with a full matrix
ALONE = 7  # the place of the fact of having no neighbours
GRAPH_FACTS = (
    8  # near_train, agree, agree_2hop, log_degree, support, conf_gap, entropy, alone; the ninth is the logit norm
)
WIDEST = 3.0  # standardised facts: a node unlike any fitted one is not extrapolated to


@dataclass(frozen=True)
class Layout:
    """Which columns there are, and what they are called."""

    classes: int
    pull: bool  # the final layer is known
    graph: bool  # the edges are known
    labels: bool

    @property
    def facts(self) -> int:
        return GRAPH_FACTS + 1 if self.graph else 1

    @property
    def context(self) -> int:
        """Numbers of a node that are read off its graph."""
        return (GRAPH_FACTS + (4 if self.labels else 2) * self.classes) if self.graph else 0

    @property
    def groups(self) -> list[str]:
        """The name of every column's group; groups share a ridge, and members of the stack are sets of groups."""
        facts = ["facts"] * self.facts
        named = ["scale", *facts]
        if self.pull:
            named += ["pull", *["pull facts"] * self.facts]
        if self.graph:
            named += ["neighbours", *["neighbours facts"] * self.facts, "neighbours"]
        if self.labels:
            named += ["labels", "labels"]
        own = ["bias", *["matrix"] * (self.classes if self.classes <= MOST_CLASSES else 1)]
        return named + own * self.classes

    @property
    def of_training(self) -> list[bool]:
        """The columns that need to know the training set."""
        if not self.graph:
            return [False] * len(self.groups)
        start = {
            name: self.groups.index(name) for name in ("facts", "pull facts", "neighbours facts") if name in self.groups
        }
        return [k in start.values() for k in range(len(self.groups))]

    def columns(self, z: Tensor, t: Tensor, facts: Tensor, context: Tensor) -> StructuredColumns:
        """For centred logits z (n, C), centroid logits t (n, C), standardised facts (n, F) and context (n, K)."""
        one = torch.ones_like(z[:, :1])
        by_node = torch.cat([one, facts], 1)
        fields, rows = [z, t] if self.pull else [z], [by_node] * (1 + self.pull)
        if self.graph:
            opinions = context[:, GRAPH_FACTS:].split(self.classes, 1)
            fields += opinions
            rows += [by_node, *[one] * (len(opinions) - 1)]
        shown = z[:, None, :].expand(-1, self.classes, -1) if self.classes <= MOST_CLASSES else z[:, :, None]
        own = torch.cat([torch.ones_like(z)[:, :, None], shown], 2)
        return StructuredColumns(fields, rows, own)


def centred(x: Tensor) -> Tensor:
    """Logits without what is common to all classes, in double precision."""
    return contrast(x.double())


def read_context(out: Outputs, layout: Layout, scale: Tensor, labels: Tensor | None, alone_is_known: bool) -> Tensor:
    """The context of every node, (N, K), with its probabilities at temperature 1 / ``scale``.

    NaN where nothing is known: the whole row of a node in a graph without edges, and of a node without neighbours unless
    ``alone_is_known``; the place of near_train on training nodes, and everywhere if the training set is not known.
    """
    if not layout.graph or out.graph.get("edge_index") is None:
        return out.logits.new_full((out.num_nodes, layout.context), torch.nan, dtype=torch.double)
    graph = MemorySums(structure(out.graph))
    context: Tensor = sums_context(out.logits, graph, layout, scale, labels, alone_is_known)
    return context


def sums_context(
    logits: Columns, graph: GraphSums, layout: Layout, scale: Tensor, labels: Tensor | None, alone_is_known: bool
) -> Columns:
    """`read_context` against `GraphSums`."""
    classes = layout.classes

    def own_rows(z: Tensor) -> Tensor:
        """Probabilities at the fitted temperature, 1, the one-hot prediction, probabilities, confidence."""
        probs = z.softmax(-1)
        hard = torch.zeros_like(probs).scatter(1, z.argmax(-1, keepdim=True), 1.0)
        soft = (scale.double() * z.double()).softmax(-1)
        return torch.cat([soft, torch.ones_like(soft[:, :1]), hard, probs, probs.amax(-1, keepdim=True)], -1)

    own = graph.rows(own_rows, logits)
    one = graph.neighbour_sum(own)
    walks = graph.neighbour_sum(graph.rows(lambda sums: sums[:, : classes + 1], one))
    agree = graph.rows(lambda o, s, d: _mean(s, d, o)[:, classes + 1 : 2 * classes + 1], own, one, graph.degree)
    agree_two = graph.neighbour_sum(agree)

    def context(
        z: Tensor,
        own: Tensor,
        one: Tensor,
        walks: Tensor,
        agree: Tensor,
        two: Tensor,
        degree: Tensor,
        back: Tensor,
        train: Tensor,
        near: Tensor,
        *label_opinions: Tensor,
    ) -> Tensor:
        first = one[:, : classes + 1]
        second = walks - back * own[:, : classes + 1]
        opinions = [log_opinion(mean_of(first)), log_opinion(mean_of(second)), *label_opinions]
        means = _mean(one, degree, own)[:, 2 * classes + 1 :]
        two_hop = _mean(two, degree, agree)
        around = (agree.to(z), two_hop.to(z), means[:, :-1].to(z), means[:, -1:].to(z))
        features = feature_rows(z, *around, degree=degree[:, 0], near=near[:, 0].nan_to_num(0.0))
        unplaced = train[:, 0] != 0  # NaN too
        return context_rows(features, degree[:, 0] == 0, opinions, unplaced, alone_is_known)

    more = []
    if layout.labels:
        known = own if labels is None else _one_hot(labels, classes)
        if labels is None:
            known = graph.rows(lambda o: torch.zeros_like(o[:, :classes]), own)
        counts = graph.neighbour_sum(known)
        again = graph.neighbour_sum(counts)
        more = [
            graph.rows(lambda c: log_opinion(c + LABEL_SMOOTHING), counts),
            graph.rows(lambda c, b, k: log_opinion(c - b * k + LABEL_SMOOTHING), again, graph.reciprocal, known),
        ]
    facts = (graph.degree, graph.reciprocal, graph.train, graph.near)
    return graph.rows(context, logits, own, one, walks, agree, agree_two, *facts, *more)


def _mean(sums: Tensor, degree: Tensor, own: Tensor) -> Tensor:
    return torch.where(degree > 0, sums / degree.clamp(min=1), own)


def _one_hot(labels: Tensor, classes: int) -> Tensor:
    known = torch.zeros(len(labels), classes, dtype=torch.double, device=labels.device)
    known[labels >= 0, labels[labels >= 0]] = 1.0
    return known


def context_rows(
    features: Tensor, alone: Tensor, opinions: Sequence[Tensor], unplaced: Tensor, alone_is_known: bool
) -> Tensor:
    """The context (n, K) of nodes with these `node_features` (n, 8) and opinions of others (n, C) each.

    ``alone`` (n,) are nodes without neighbours; ``unplaced`` (n,) those of which it does not count whether they are next to the
    training set.
    """
    absent = torch.tensor([False, True, True, False, True, True, True], device=alone.device)
    facts = features[:, : GRAPH_FACTS - 1]
    facts = torch.where(alone[:, None] & absent, torch.zeros_like(facts), facts)
    context = torch.cat([facts, alone[:, None].double(), *opinions], 1)
    context[:, 0].masked_fill_(unplaced, torch.nan)
    return context if alone_is_known else context.masked_fill(alone[:, None], torch.nan)


@dataclass(frozen=True, eq=False)
class FactUnits:
    """Centre, spread and range (F,) of the facts on the fitted nodes."""

    centre: Tensor
    spread: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, facts: Tensor) -> FactUnits:
        """From facts (n, F), NaN where unknown."""
        known = ~facts.isnan()
        count = known.sum(0).clamp(min=1)
        centre = facts.nansum(0) / count
        spread = ((facts - centre).square().nansum(0) / count).sqrt()
        spread = torch.where(spread > 1e-6, spread, torch.ones_like(spread))
        units = (facts - centre) / spread
        low = units.nan_to_num(nan=torch.inf).amin(0).clamp(-WIDEST, 0.0)
        high = units.nan_to_num(nan=-torch.inf).amax(0).clamp(0.0, WIDEST)
        return cls(centre, spread, low, high)

    def __call__(self, facts: Tensor) -> Tensor:
        """In units of their spread, within the range that was seen; unknown ones are average."""
        units = (facts - self.centre) / self.spread
        units = torch.minimum(torch.maximum(units, self.low), self.high)
        return torch.where(units.isnan(), torch.zeros_like(units), units)


def raw_facts(z: Tensor, context: Tensor) -> Tensor:
    """The facts (n, F) of nodes with centred logits z: those of the graph, and the length of the logits.

    What a node without neighbours lacks is NaN.
    """
    length: Tensor = z.norm(dim=-1, keepdim=True)
    if context.shape[1] == 0:
        return length
    facts = context[:, :GRAPH_FACTS]
    place = torch.arange(GRAPH_FACTS, device=z.device)
    lacking = (facts[:, ALONE : ALONE + 1] == 1) & ((place == 1) | (place == 2) | ((place >= 4) & (place <= 6)))
    return torch.cat([torch.where(lacking, torch.full_like(facts, torch.nan), facts), length], 1)
