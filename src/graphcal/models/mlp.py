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

from graphcal.engine.dropout import Dropout, relu_dropout
from graphcal.engine.layers import Linear, Linears
from graphcal.engine.operators import nothing
from graphcal.engine.receptive import Field
from graphcal.models.config import Replicas, Shape


@dataclass(frozen=True)
class MLP:
    layers: int = 2

    def prepare(self, edges: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return nothing(edges), x

    def build(self, shape: Shape, generators: Sequence[torch.Generator]) -> Replicas:
        return MLPReplicas(self, shape, generators)


class MLPReplicas(Replicas):
    head: Linear

    def __init__(self, spec: MLP, shape: Shape, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        if spec.layers < 2:
            raise ValueError(f"an MLP has at least 2 layers; got layers={spec.layers} (one layer is sgc with hops=0)")
        self.shape, self.depth = shape, 0
        widths = [shape.features] + [shape.hidden] * (spec.layers - 1)
        self.layers = Linears(Linear(i, o, generators, shape.init) for i, o in pairwise(widths))
        self.head = Linear(widths[-1], shape.classes, generators, shape.init)

    def representation(self, field: Field, drop: Dropout | None = None) -> Tensor:
        first, *rest = self.layers
        z = field.keep_asked(field.project(first.weight, drop))
        h = relu_dropout(z, first.bias, drop, field.answers, self.shape.dropout, layer=1)
        for k, layer in enumerate(rest, start=2):
            h = relu_dropout(h @ layer.weight, layer.bias, drop, field.answers, self.shape.dropout, layer=k)
        return h

    def forward(self, field: Field, drop: Dropout | None = None) -> Tensor:
        return self.head(self.representation(field, drop))
