"""Run a trained model again: on a graph with weighted edges (DCGC), with its dropout active (CaGCN's official loop), or with the
input of its last attention layer moved (SCAR's official GAT code).

A weight w_ij on the edge j -> i enters the way the backbone reads its edges; a self loop counts 1:

    symmetric   D^-1/2 (W + I) D^-1/2, D the row sums of W + I        gcn, gat-cagcn, appnp, gcnii, jknet    (as PyG's GCNConv)
    mean        W divided by its row sums                             sage
    attention   a_ij ~ w_ij exp(score_ij)                             gat

With all weights 1 the logits are those of the trained model. The model itself is frozen: only the weights have a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import leaky_relu

from graphcal.engine.dropout import Dropout
from graphcal.engine.receptive import Field
from graphcal.engine.sparse import Sparse

if TYPE_CHECKING:
    from graphcal.models.config import Replicas


class WeightedHop(Sparse):
    """An operator with values of its own; the places of its entries are those of ``base``."""

    def __init__(self, base: Sparse, values: Tensor, log_weight: Tensor) -> None:
        super().__init__(base.offsets, base.indices, values, base.shape)
        self.base, self.log_weight = base, log_weight

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self.base.weighted(self.values[:, None].expand(-1, len(dense)).contiguous(), dense)

    def weighted(self, values: Tensor, dense: Tensor) -> Tensor:
        return self.base.weighted(values, dense)

    def softmax(self, scores: Tensor) -> Tensor:
        return self.base.softmax(scores + self.log_weight[:, None])

    def spread(self, by_row: Tensor, by_col: Tensor) -> Tensor:
        return self.base.spread(by_row, by_col)

    def attention(self, by_row: Tensor, by_col: Tensor, slope: float) -> Tensor:
        return self.softmax(leaky_relu(self.spread(by_row, by_col), slope))


@dataclass(eq=False)
class WeightedField(Field):
    """The whole graph with weighted hops. X W never changes: it is computed once for each weight."""

    known: dict[int, Tensor] = field(default_factory=dict)

    def project(self, weight: Tensor, drop: Dropout | None = None, level: int = 0) -> Tensor:
        if id(weight) not in self.known:
            with torch.no_grad():
                self.known[id(weight)] = self.x.times(weight)
        return self.known[id(weight)]

    def propagate(self, weight: Tensor, drop: Dropout | None = None) -> Tensor:
        return self.hops[0] @ self.project(weight)


@dataclass(frozen=True, eq=False)
class Rerun:
    """A trained model as a function of its edge weights, aligned with ``edge_index``."""

    reads: str
    model: Replicas  # one replica
    everything: Callable[[], Field]
    edge_index: Tensor
    known: dict[int, Tensor] = field(default_factory=dict)

    @cached_property
    def _frozen(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self.model.named_parameters()}

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Edges that are not loops, the entry of the operator each belongs to, and 1 for the entries that are loops."""
        base, (source, target) = self.everything().hops[0], self.edge_index
        other = (source != target).nonzero().flatten()
        key = base.rows * base.shape[1] + base.cols  # ascending: entries stand row by row, columns sorted
        order = torch.argsort(key)
        wanted = target[other] * base.shape[1] + source[other]
        return other, order[torch.searchsorted(key[order], wanted)], (base.rows == base.cols).to(base.values)

    def __call__(self, edge_weight: Tensor) -> Tensor:
        whole = self.everything()
        base = whole.hops[0]
        other, place, loops = self._places
        weight = loops.index_add(0, place, edge_weight.to(loops)[other])  # (nnz,)
        hop = WeightedHop(base, self._values(weight, base), weight.clamp(min=1e-12).log())
        again = WeightedField(whole.nodes, [hop] * len(whole.hops), whole.x, whole.own, known=self.known)
        return functional_call(self.model, self._frozen, (again,))[0]

    def _values(self, weight: Tensor, base: Sparse) -> Tensor:
        degree = weight.new_zeros(base.shape[0]).index_add(0, base.rows, weight).clamp(min=1e-6)
        if self.reads == "symmetric":
            scale = degree.rsqrt()
            return weight * scale[base.rows] * scale[base.cols]
        return weight / degree[base.rows] if self.reads == "mean" else weight
