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

from graphcal.lab.engine.dropout import Dropout, relu_dropout
from graphcal.lab.engine.layers import Linear
from graphcal.lab.engine.operators import symmetric
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.engine.sparse import Sparse
from graphcal.lab.models.replicas import ModelConfig, Replicas


@dataclass(frozen=True)
class APPNP:
    """Gasteiger et al. 2019: an MLP, then ``hops`` steps of personalised PageRank."""

    hops: int = 10
    teleport: float = 0.1
    edge_dropout: float = 0.5

    def prepare(self, adjacency: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return symmetric(adjacency), x

    def build(self, config: ModelConfig, generators: Sequence[torch.Generator]) -> Replicas:
        return APPNPReplicas(self, config, generators)


class APPNPReplicas(Replicas):
    normalisation = "symmetric"
    head: Linear

    def __init__(self, backbone: APPNP, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.config, self.backbone, self.depth = config, backbone, backbone.hops
        self.first = Linear(config.in_channels, config.hidden_channels, generators, config.init)
        self.head = Linear(config.hidden_channels, config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        z = field.project(self.first.weight, drop)
        return relu_dropout(z, self.first.bias, drop, field.nodes[0], self.config.dropout, layer=1)

    def propagated(self, h: Tensor, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        z, a = h, self.backbone.teleport
        for k, hop in enumerate(field.hops):
            h = field.select_self(h, k)
            z = (1 - a) * _read(hop, z, drop, self.backbone.edge_dropout, k + 2) + a * h
        return field.select_output(z)

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        return self.propagated(self.head(self.hidden(field, drop)), field, drop)

    def representation(self, field: ReceptiveField) -> Tensor:
        h = self.hidden(field, None)
        return self.propagated(torch.cat([h, torch.ones_like(h[..., :1])], -1), field, None)

    def final_map(self) -> tuple[Tensor, Tensor]:
        return torch.cat([self.head.weight, self.head.bias], 1), torch.zeros_like(self.head.bias)


def _read(hop: Sparse, z: Tensor, drop: Dropout | None, p: float, layer: int) -> Tensor:
    """drop(A) Z"""
    if drop is None or p == 0:
        return hop @ z
    mask = drop.mask(hop.entries, 1, p, layer)[..., 0]  # (R, nnz)
    return hop.weighted((mask * hop.values).T, z)
