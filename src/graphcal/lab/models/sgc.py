"""SGC: Wu et al., Simplifying Graph Convolutional Networks, ICML 2019 (arXiv 1902.07153).

    z = A^K X W + b        A = D^-1/2 (Adj + I) D^-1/2

W^(K) = W, the only matrix there is, and h^(K) = A^K X, computed once. SCAR's class-centroid-level lever is then the whole decay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import scipy.sparse as sp
import torch
from torch import Tensor

from graphcal.lab.engine.dropout import Dropout
from graphcal.lab.engine.layers import Linear
from graphcal.lab.engine.operators import symmetric
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.models.replicas import ModelConfig, Replicas


@dataclass(frozen=True)
class SGC:
    """Wu et al. 2019: a linear model of the features after ``hops`` propagations."""

    hops: int = 2

    def prepare(self, adjacency: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        operator = symmetric(adjacency)
        for _ in range(self.hops):
            x = (operator @ x).tocsr()
        return operator, x

    def build(self, config: ModelConfig, generators: Sequence[torch.Generator]) -> Replicas:
        return SGCReplicas(config, generators)


class SGCReplicas(Replicas):
    head: Linear

    def __init__(self, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.config, self.depth = config, 0
        self.head = Linear(config.in_channels, config.num_classes, generators, config.init)

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        return field.select_output(field.project(self.head.weight, drop)) + self.head.bias

    def representation(self, field: ReceptiveField) -> Tensor:
        h = field.select_output(field.x.rows[None])  # (1, n, F), the same for every replica
        return h.expand(len(self.head.weight), -1, -1)
