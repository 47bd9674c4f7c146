"""MLP: the network that ignores the graph, the yardstick for what the edges add.

    h_1 = dropout(relu(X W_1 + b_1)),  ...,  z = h_{K-1} W_K + b_K

W^(K) = W_K and h^(K) = h_{K-1}.
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
from graphcal.lab.engine.operators import no_edges
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.models.replicas import ModelConfig, Replicas


@dataclass(frozen=True)
class MLP:
    """``layers`` linear maps of a node's own features; the edges are not read."""

    layers: int = 2

    def prepare(self, adjacency: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return no_edges(adjacency), x

    def build(self, config: ModelConfig, generators: Sequence[torch.Generator]) -> Replicas:
        return MLPReplicas(self, config, generators)


class MLPReplicas(Replicas):
    head: Linear

    def __init__(self, backbone: MLP, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        if backbone.layers < 2:
            raise ValueError(
                f"an MLP has at least 2 layers; got layers={backbone.layers} (one layer is sgc with hops=0)"
            )
        self.config, self.depth = config, 0
        widths = [config.in_channels] + [config.hidden_channels] * (backbone.layers - 1)
        self.layers = Linears(Linear(i, o, generators, config.init) for i, o in pairwise(widths))
        self.head = Linear(widths[-1], config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        """h^(K)"""  # (R, n, D)
        first, *rest = self.layers
        z = field.select_output(field.project(first.weight, drop))
        h = relu_dropout(z, first.bias, drop, field.output_nodes, self.config.dropout, layer=1)
        for k, layer in enumerate(rest, start=2):
            h = relu_dropout(h @ layer.weight, layer.bias, drop, field.output_nodes, self.config.dropout, layer=k)
        return h

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        return self.head(self.hidden(field, drop))

    def representation(self, field: ReceptiveField) -> Tensor:
        return self.hidden(field, None)
