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

from graphcal.engine.dropout import Dropout
from graphcal.engine.layers import Linear
from graphcal.engine.operators import symmetric
from graphcal.engine.receptive import Field
from graphcal.models.config import Replicas, Shape


@dataclass(frozen=True)
class SGC:
    hops: int = 2

    def prepare(self, edges: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        operator = symmetric(edges)
        for _ in range(self.hops):
            x = (operator @ x).tocsr()
        return operator, x

    def build(self, shape: Shape, generators: Sequence[torch.Generator]) -> Replicas:
        return SGCReplicas(shape, generators)


class SGCReplicas(Replicas):
    head: Linear

    def __init__(self, shape: Shape, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.shape, self.depth = shape, 0
        self.head = Linear(shape.features, shape.classes, generators, shape.init)

    def forward(self, field: Field, drop: Dropout | None = None) -> Tensor:
        return field.keep_asked(field.project(self.head.weight, drop)) + self.head.bias

    def representation(self, field: Field, drop: Dropout | None = None) -> Tensor:
        h = field.keep_asked(field.x.rows[None])  # (1, n, F), the same for every replica
        if drop is not None and self.shape.input_dropout > 0:
            raise ValueError("sgc with input dropout has no fixed representation: set input_dropout=0 for this loss")
        return h.expand(len(self.head.weight), -1, -1)
