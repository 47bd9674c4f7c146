"""APPNP: Gasteiger (Klicpera), Bojchevski & Günnemann, Predict then Propagate, ICLR 2019 (arXiv 1810.05997).

    H   = dropout(relu(X W_1 + b_1)) W_2 + b_2
    Z_0 = H,   Z_{k+1} = (1 - a) drop(A) Z_k + a H,   z = Z_K        A = D^-1/2 (Adj + I) D^-1/2

Propagation is linear: z = P h W_2 + (P 1) b_2 with P = (1-a)^K A^K + a sum_k (1-a)^k A^k. The rows of P do not sum to one, so the
bias is a column of the final layer: h^(K) = [P h, P 1] and W^(K) = [W_2; b_2], without a further bias.

Departures: none from the paper; its dropout of the adjacency in every step is ``edge_dropout``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import scipy.sparse as sp
import torch
from torch import Tensor

from graphcal.engine.dropout import Dropout, relu_dropout
from graphcal.engine.layers import Linear
from graphcal.engine.operators import symmetric
from graphcal.engine.receptive import Field
from graphcal.engine.sparse import Sparse
from graphcal.models.config import Replicas, Shape


@dataclass(frozen=True)
class APPNP:
    hops: int = 10
    teleport: float = 0.1
    edge_dropout: float = 0.5

    def prepare(self, edges: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return symmetric(edges), x

    def build(self, shape: Shape, generators: Sequence[torch.Generator]) -> Replicas:
        return APPNPReplicas(self, shape, generators)


class APPNPReplicas(Replicas):
    reads_edges = "symmetric"
    head: Linear

    def __init__(self, spec: APPNP, shape: Shape, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.shape, self.spec, self.depth = shape, spec, spec.hops
        self.first = Linear(shape.features, shape.hidden, generators, shape.init)
        self.head = Linear(shape.hidden, shape.classes, generators, shape.init)

    def hidden(self, field: Field, drop: Dropout | None) -> Tensor:
        z = field.project(self.first.weight, drop)
        return relu_dropout(z, self.first.bias, drop, field.nodes[0], self.shape.dropout, layer=1)

    def propagated(self, h: Tensor, field: Field, drop: Dropout | None) -> Tensor:
        z, a = h, self.spec.teleport
        for k, hop in enumerate(field.hops):
            h = field.keep_own(h, k)
            z = (1 - a) * _read(hop, z, drop, self.spec.edge_dropout, k + 2) + a * h
        return field.keep_asked(z)

    def forward(self, field: Field, drop: Dropout | None = None) -> Tensor:
        return self.propagated(self.head(self.hidden(field, drop)), field, drop)

    def representation(self, field: Field, drop: Dropout | None = None) -> Tensor:
        h = self.hidden(field, drop)
        return self.propagated(torch.cat([h, torch.ones_like(h[..., :1])], -1), field, drop)

    def centroids(self) -> tuple[Tensor, Tensor]:
        return torch.cat([self.head.weight, self.head.bias], 1), torch.zeros_like(self.head.bias)


def _read(hop: Sparse, z: Tensor, drop: Dropout | None, p: float, layer: int) -> Tensor:
    """drop(A) Z"""
    if drop is None or p == 0:
        return hop @ z
    mask = drop.mask(hop.entries, 1, p, layer)[..., 0]  # (R, nnz)
    return hop.weighted((mask * hop.values).T, z)
