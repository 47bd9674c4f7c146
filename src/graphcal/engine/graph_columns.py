"""What a graph can say about a node's logits, as columns of a convex fit: the design of `graphcal.methods.graph_scaling`.

    fields   z      centred logits                                     x (1, facts)
             t      centroid logits of SCAR, where the layer is known  x (1, facts)
             v1     centred log of the neighbours' mean probability    x (1, facts)
             v2     the same over walks of length two                  x 1
             l1, l2 labels one and two steps away, where asked for     x 1 each
    own      a bias per class; all logits (C <= 10) or the class's own (C > 10)

Facts are those of `graphcal.engine.node_features`, in units of their spread and clamped to what was seen while fitting. A node
without neighbours has none of them: they count as average, and a fact of its own, ``alone``, says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcal.core import Outputs
from graphcal.engine.columns import StructuredColumns, contrast
from graphcal.engine.node_features import label_opinion, log_opinion, node_features, walk_means
from graphcal.graphs import structure

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
    graph = structure(out.graph)
    opinions = [log_opinion(mean) for mean in walk_means(graph, (scale.double() * out.logits.double()).softmax(-1))]
    if layout.labels:
        unknown = torch.full((out.num_nodes,), -1, device=out.logits.device)
        opinions += label_opinion(graph, unknown if labels is None else labels, layout.classes)
    unplaced = graph.train_mask | ~graph.train_mask.any()
    return context_rows(node_features(out), graph.degree == 0, opinions, unplaced, alone_is_known)


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
