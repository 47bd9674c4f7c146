"""GCN: Kipf & Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017 (arXiv 1609.02907).

    h_1 = dropout(relu(A X W_1 + b_1))        A = D^-1/2 (Adj + I) D^-1/2, D the degrees of Adj + I
    z   = A h_1 W_2 + b_2

W^(K) = W_2 and h^(K) = A h_1: propagation and the linear map commute, so z = h^(K) W^(K) + b_2.

Departures: the paper has 16 hidden units, no bias, dropout on the input too and decay on W_1 only; what is trained here is
chosen by `graphcal.lab.training.Training`, by default as CaGCN has it: 64 units, bias, dropout on the hidden layer only.
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
from graphcal.lab.engine.operators import symmetric
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.models.replicas import ModelConfig, Replicas


@dataclass(frozen=True)
class GCN:
    """Kipf & Welling 2017: ``layers`` graph convolutions with ReLU and dropout between them."""

    layers: int = 2

    def prepare(self, adjacency: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return symmetric(adjacency), x

    def build(self, config: ModelConfig, generators: Sequence[torch.Generator]) -> Replicas:
        return GCNReplicas(self, config, generators)


class GCNReplicas(Replicas):
    normalisation = "symmetric"
    head: Linear

    def __init__(self, backbone: GCN, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        if backbone.layers < 2:
            raise ValueError(
                f"a GCN has at least 2 layers; got layers={backbone.layers} (one layer is sgc with hops=1)"
            )
        self.config, self.depth = config, backbone.layers
        widths = [config.in_channels] + [config.hidden_channels] * (backbone.layers - 1)
        self.convs = Linears(Linear(i, o, generators, config.init) for i, o in pairwise(widths))
        self.head = Linear(widths[-1], config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        """The last hidden layer, before its propagation."""  # (R, n, H)
        h = torch.empty(0)
        for k, conv in enumerate(self.convs):
            z = field.propagate(conv.weight, drop) if k == 0 else field.hops[k] @ (h @ conv.weight)
            h = relu_dropout(z, conv.bias, drop, field.nodes[k + 1], self.config.dropout, layer=k + 1)
        return h

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        return field.select_output(field.hops[-1] @ (self.hidden(field, drop) @ self.head.weight)) + self.head.bias

    def representation(self, field: ReceptiveField) -> Tensor:
        return field.select_output(field.hops[-1] @ self.hidden(field, None))
