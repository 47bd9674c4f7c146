"""FAGCN: Bo et al., Beyond Low-frequency Information in Graph Convolutional Networks, AAAI 2021 (arXiv 2101.00797).

    h_0 = drop(relu(drop(X) W_1 + b_1))
    e_ij = tanh(g^T [h_i, h_j] + c) / sqrt(d_i d_j),   h_i <- eps h_0i + sum_j drop(e_ij) h_j        without self loops
    z   = h W + b

A coefficient may be negative: a node may read the difference to a neighbour. W^(K) = W and h^(K) is the last h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import scipy.sparse as sp
import torch
from torch import Tensor

from graphcal.engine.dropout import Dropout, relu_dropout
from graphcal.engine.layers import Linear, Linears, by_node, tanh
from graphcal.engine.operators import signed
from graphcal.engine.receptive import Field
from graphcal.models.config import Replicas, Shape


@dataclass(frozen=True)
class FAGCN:
    layers: int = 2
    eps: float = 0.3

    def prepare(self, edges: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return signed(edges), x

    def build(self, shape: Shape, generators: Sequence[torch.Generator]) -> Replicas:
        return FAGCNReplicas(self, shape, generators)


class FAGCNReplicas(Replicas):
    head: Linear

    def __init__(self, spec: FAGCN, shape: Shape, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.shape, self.spec, self.depth = shape, spec, spec.layers
        self.first = Linear(shape.features, shape.hidden, generators, shape.init)
        self.gates = Linears(Linear(2 * shape.hidden, 1, generators, shape.init) for _ in range(spec.layers))
        self.head = Linear(shape.hidden, shape.classes, generators, shape.init)

    def representation(self, field: Field, drop: Dropout | None = None) -> Tensor:
        p = self.shape.dropout
        h = raw = relu_dropout(
            field.project(self.first.weight, drop), self.first.bias, drop, field.nodes[0], p, layer=1
        )
        for k, gate in enumerate(self.gates):
            hop = field.hops[k]
            mine, others = gate.weight.transpose(1, 2).chunk(2, dim=-1)  # (R, 1, H)
            by_row = (field.keep_own(h, k) * mine).sum(-1, keepdim=True) + gate.bias  # (R, n, 1)
            by_col = (h * others).sum(-1, keepdim=True)
            e = tanh(hop.spread(by_node(by_row), by_node(by_col))) * hop.values[:, None]  # (nnz, R)
            if drop is not None and p > 0:
                e = e * drop.mask(hop.entries, 1, p, layer=k + 2)[..., 0].T
            raw = field.keep_own(raw, k)
            h = self.spec.eps * raw + hop.weighted(e, h)
        return field.keep_asked(h)

    def forward(self, field: Field, drop: Dropout | None = None) -> Tensor:
        return self.head(self.representation(field, drop))
