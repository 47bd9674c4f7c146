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

from graphcal.lab.engine.dropout import Dropout, relu_dropout
from graphcal.lab.engine.layers import Linear, Linears, nodes_first, tanh
from graphcal.lab.engine.operators import symmetric_no_loops
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.models.replicas import ModelConfig, Replicas


@dataclass(frozen=True)
class FAGCN:
    """Bo et al. 2021: propagation with signed, learned coefficients; reads differences as well as means."""

    layers: int = 2
    eps: float = 0.3

    def prepare(self, adjacency: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return symmetric_no_loops(adjacency), x

    def build(self, config: ModelConfig, generators: Sequence[torch.Generator]) -> Replicas:
        return FAGCNReplicas(self, config, generators)


class FAGCNReplicas(Replicas):
    head: Linear

    def __init__(self, backbone: FAGCN, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.config, self.backbone, self.depth = config, backbone, backbone.layers
        self.first = Linear(config.in_channels, config.hidden_channels, generators, config.init)
        self.gates = Linears(
            Linear(2 * config.hidden_channels, 1, generators, config.init) for _ in range(backbone.layers)
        )
        self.head = Linear(config.hidden_channels, config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        """h^(K)"""  # (R, n, D)
        p = self.config.dropout
        h = raw = relu_dropout(
            field.project(self.first.weight, drop), self.first.bias, drop, field.nodes[0], p, layer=1
        )
        for k, gate in enumerate(self.gates):
            hop = field.hops[k]
            mine, others = gate.weight.transpose(1, 2).chunk(2, dim=-1)  # (R, 1, H)
            by_row = (field.select_self(h, k) * mine).sum(-1, keepdim=True) + gate.bias  # (R, n, 1)
            by_col = (h * others).sum(-1, keepdim=True)
            e = tanh(hop.edge_add(nodes_first(by_row), nodes_first(by_col))) * hop.values[:, None]  # (nnz, R)
            if drop is not None and p > 0:
                e = e * drop.mask(hop.entries, 1, p, layer=k + 2)[..., 0].T
            raw = field.select_self(raw, k)
            h = self.backbone.eps * raw + hop.weighted(e, h)
        return field.select_output(h)

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        return self.head(self.hidden(field, drop))

    def representation(self, field: ReceptiveField) -> Tensor:
        return self.hidden(field, None)
