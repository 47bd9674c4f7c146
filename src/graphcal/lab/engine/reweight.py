"""A trained model as a function of weights on its edges (what DCGC learns).

A weight w_ij on the edge j -> i enters the way the model normalises its edges; a self loop counts 1:

    symmetric   D^-1/2 (W + I) D^-1/2, D the row sums of W + I        as PyG's GCNConv
    mean        W divided by its row sums                             GraphSAGE
    attention   a_ij ~ w_ij exp(score_ij)                             GAT

With all weights 1 the logits are those of the trained model. The model itself is frozen: only the weights have a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import leaky_relu

from graphcal.lab.engine.dropout import Dropout
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.engine.sparse import Sparse


class WeightedSparse(Sparse):
    """An operator with values of its own; the places of its entries are those of ``base``."""

    def __init__(self, base: Sparse, values: Tensor, log_weight: Tensor) -> None:
        super().__init__(base.offsets, base.indices, values, base.shape)
        self.base, self.log_weight = base, log_weight

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self.base.weighted(self.values[:, None].expand(-1, len(dense)).contiguous(), dense)

    def weighted(self, values: Tensor, dense: Tensor) -> Tensor:
        return self.base.weighted(values, dense)

    def edge_add(self, by_row: Tensor, by_col: Tensor) -> Tensor:
        return self.base.edge_add(by_row, by_col)

    def edge_softmax(self, scores: Tensor) -> Tensor:
        return self.base.edge_softmax(scores + self.log_weight[:, None])

    def attention(self, by_row: Tensor, by_col: Tensor, slope: float) -> Tensor:
        return self.edge_softmax(leaky_relu(self.edge_add(by_row, by_col), slope))


@dataclass(eq=False)
class WeightedField(ReceptiveField):
    """The whole graph with weighted hops. X W never changes: it is computed once for each weight."""

    projections: dict[int, Tensor] = field(default_factory=dict)

    def project(self, weight: Tensor, drop: Dropout | None = None, level: int = 0) -> Tensor:
        if id(weight) not in self.projections:
            with torch.no_grad():
                self.projections[id(weight)] = self.x.times(weight)
        return self.projections[id(weight)]

    def propagate(self, weight: Tensor, drop: Dropout | None = None) -> Tensor:
        return self.hops[0] @ self.project(weight)


@dataclass(frozen=True, eq=False)
class EdgeWeightedModel:
    """Logits (N, C) of a trained model from weights (E,), aligned with ``edge_index``."""

    model: nn.Module  # one replica: receptive field -> logits (1, N, C)
    normalisation: str  # symmetric, mean or attention
    full_graph: Callable[[], ReceptiveField]
    edge_index: Tensor
    projections: dict[int, Tensor] = field(default_factory=dict)

    def __call__(self, edge_weight: Tensor) -> Tensor:
        graph = self.full_graph()
        operator = graph.hops[0]
        edges, entry, loops = self._places
        weight = loops.index_add(0, entry, edge_weight.to(loops)[edges])  # (nnz,)
        hop = WeightedSparse(operator, self._values(weight, operator), weight.clamp(min=1e-12).log())
        hops = [hop] * len(graph.hops)
        weighted = WeightedField(graph.nodes, hops, graph.x, graph.self_index, projections=self.projections)
        logits: Tensor = functional_call(self.model, self._frozen, (weighted,))[0]
        return logits

    @cached_property
    def _frozen(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self.model.named_parameters()}

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Edges that are not loops, the entry of the operator each belongs to, and 1 for the entries that are loops."""
        operator, (source, target) = self.full_graph().hops[0], self.edge_index
        edges = (source != target).nonzero().flatten()
        key = operator.rows * operator.shape[1] + operator.cols  # ascending: entries stand row by row, columns sorted
        order = torch.argsort(key)
        wanted = target[edges] * operator.shape[1] + source[edges]
        entry = order[torch.searchsorted(key[order], wanted)]
        return edges, entry, (operator.rows == operator.cols).to(operator.values)

    def _values(self, weight: Tensor, operator: Sparse) -> Tensor:
        """The entries of the operator that these weights make, normalised."""  # (nnz,)
        degree = weight.new_zeros(operator.shape[0]).index_add(0, operator.rows, weight).clamp(min=1e-6)
        if self.normalisation == "symmetric":
            scale = degree.rsqrt()
            return weight * scale[operator.rows] * scale[operator.cols]
        return weight / degree[operator.rows] if self.normalisation == "mean" else weight
