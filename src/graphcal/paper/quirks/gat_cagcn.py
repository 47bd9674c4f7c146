"""The "GAT" of CaGCN's code, for reproduction only: it has no attention.

In the sparse layer of BUPT-GAMMA/CaGCN (NeurIPS 2021) the attention is commented out; what is left is a GCN with eight branches,
and the network ends in an ELU. The published GAT rows of the CaGCN protocol come from this:

    h = drop([ELU(A drop(X) W_1), ..., ELU(A drop(X) W_8)]),   z = ELU(A h W)        A = D^-1/2 (Adj + I) D^-1/2

All logits are above -1, which squashes the classes that are not meant and is a direct cause of the under-confidence reported.
The output is not linear in a last layer: there is no W^(K), and SCAR cannot be applied. For a true GAT use `gat`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from graphcal.engine.dropout import Dropout
from graphcal.engine.layers import Linear, drawn, elu
from graphcal.engine.operators import symmetric
from graphcal.engine.receptive import Field
from graphcal.models.config import Replicas, Shape


@dataclass(frozen=True)
class GATofCaGCN:
    heads: int = 8

    def prepare(self, edges: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return symmetric(edges), x

    def build(self, shape: Shape, generators: Sequence[torch.Generator]) -> Replicas:
        return GATofCaGCNReplicas(self, shape, generators)


class GATofCaGCNReplicas(Replicas):
    reads_edges = "symmetric"
    head: Linear
    depth = 2

    def __init__(self, spec: GATofCaGCN, shape: Shape, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.shape = shape
        width = spec.heads * shape.hidden
        # each branch is drawn as a layer of its own: fan-out is one branch's width
        self.branches = drawn((shape.features, width), shape.features, shape.hidden, generators, shape.init)
        self.head = Linear(width, shape.classes, generators, shape.init, bias=False)

    def forward(self, field: Field, drop: Dropout | None = None) -> Tensor:
        h = elu(field.propagate(self.branches, drop))
        h = h if drop is None else drop(h, field.nodes[1], self.shape.dropout, layer=1)
        return elu(field.hops[1] @ (h @ self.head.weight))

    def representation(self, field: Field, drop: Dropout | None = None) -> None:
        return None

    def centroids(self) -> None:
        return None

    def final_parameters(self) -> list[nn.Parameter]:
        return [self.head.weight]
