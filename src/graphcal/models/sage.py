"""GraphSAGE with the mean aggregator: Hamilton, Ying & Leskovec, NeurIPS 2017 (arXiv 1706.02216).

    h_i = dropout(relu(mean_{j in N(i)} x_j W_n + x_i W_r + b)),  ...,  z_i = [mean_j h_j, h_i] W^(K) + b

W^(K) stacks the neighbours' and the root's matrices, h^(K) = [mean_j h_j, h_i]; its Gram matrix is the sum of the two.

Departures: full neighbourhoods instead of samples, and no scaling of the rows to length one (as in PyG's SAGEConv).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import scipy.sparse as sp
import torch
from torch import Tensor

from graphcal.engine.dropout import Dropout, relu_dropout
from graphcal.engine.layers import Linear, Linears
from graphcal.engine.operators import mean
from graphcal.engine.receptive import Field
from graphcal.models.config import Replicas, Shape


@dataclass(frozen=True)
class GraphSAGE:
    layers: int = 2

    def prepare(self, edges: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return mean(edges), x

    def build(self, shape: Shape, generators: Sequence[torch.Generator]) -> Replicas:
        return SAGEReplicas(self, shape, generators)


class SAGEReplicas(Replicas):
    reads_edges = "mean"
    head: Linear

    def __init__(self, spec: GraphSAGE, shape: Shape, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        if spec.layers < 2:
            raise ValueError(f"GraphSAGE has at least 2 layers here; got layers={spec.layers}")
        self.shape, self.depth = shape, spec.layers
        widths = [shape.features] + [shape.hidden] * (spec.layers - 1)
        pairs = list(pairwise(widths))
        self.neighbours = Linears(Linear(i, o, generators, shape.init) for i, o in pairs)
        self.roots = Linears(Linear(i, o, generators, shape.init, bias=False) for i, o in pairs)
        self.head = Linear(2 * widths[-1], shape.classes, generators, shape.init)

    def hidden(self, field: Field, drop: Dropout | None) -> Tensor:
        h = torch.empty(0)
        for k, (near, root) in enumerate(zip(self.neighbours, self.roots)):
            if k == 0:
                z = field.propagate(near.weight, drop) + field.project(root.weight, drop, level=1)
            else:
                z = field.hops[k] @ (h @ near.weight) + field.keep_own(h, k) @ root.weight
            h = relu_dropout(z, near.bias, drop, field.nodes[k + 1], self.shape.dropout, layer=k + 1)
        return h

    def forward(self, field: Field, drop: Dropout | None = None) -> Tensor:
        h, (near, root) = self.hidden(field, drop), self.head.weight.chunk(2, dim=1)
        z = field.hops[-1] @ (h @ near) + field.keep_own(h, self.depth - 1) @ root
        return field.keep_asked(z) + self.head.bias

    def representation(self, field: Field, drop: Dropout | None = None) -> Tensor:
        h = self.hidden(field, drop)
        return field.keep_asked(torch.cat([field.hops[-1] @ h, field.keep_own(h, self.depth - 1)], -1))
