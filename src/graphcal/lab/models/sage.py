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

from graphcal.lab.engine.dropout import Dropout, relu_dropout
from graphcal.lab.engine.layers import Linear, Linears
from graphcal.lab.engine.operators import mean
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.models.replicas import ModelConfig, Replicas


@dataclass(frozen=True)
class GraphSAGE:
    """Hamilton et al. 2017, mean aggregator: a node and the mean of its neighbours have a matrix each."""

    layers: int = 2

    def prepare(self, adjacency: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return mean(adjacency), x

    def build(self, config: ModelConfig, generators: Sequence[torch.Generator]) -> Replicas:
        return SAGEReplicas(self, config, generators)


class SAGEReplicas(Replicas):
    normalisation = "mean"
    head: Linear

    def __init__(self, backbone: GraphSAGE, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        if backbone.layers < 2:
            raise ValueError(f"GraphSAGE has at least 2 layers here; got layers={backbone.layers}")
        self.config, self.depth = config, backbone.layers
        widths = [config.in_channels] + [config.hidden_channels] * (backbone.layers - 1)
        pairs = list(pairwise(widths))
        self.neighbours = Linears(Linear(i, o, generators, config.init) for i, o in pairs)
        self.roots = Linears(Linear(i, o, generators, config.init, bias=False) for i, o in pairs)
        self.head = Linear(2 * widths[-1], config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        h = torch.empty(0)
        for k, (near, root) in enumerate(zip(self.neighbours, self.roots)):
            if k == 0:
                z = field.propagate(near.weight, drop) + field.project(root.weight, drop, level=1)
            else:
                z = field.hops[k] @ (h @ near.weight) + field.select_self(h, k) @ root.weight
            h = relu_dropout(z, near.bias, drop, field.nodes[k + 1], self.config.dropout, layer=k + 1)
        return h

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        h, (near, root) = self.hidden(field, drop), self.head.weight.chunk(2, dim=1)
        z = field.hops[-1] @ (h @ near) + field.select_self(h, self.depth - 1) @ root
        return field.select_output(z) + self.head.bias

    def representation(self, field: ReceptiveField) -> Tensor:
        h = self.hidden(field, None)
        return field.select_output(torch.cat([field.hops[-1] @ h, field.select_self(h, self.depth - 1)], -1))
