"""JK-Net: Xu et al., Representation Learning on Graphs with Jumping Knowledge Networks, ICML 2018 (arXiv 1806.03536).

    h_k = dropout(relu(A h_{k-1} W_k + b_k)),  k = 1..L        h = [h_1, ..., h_L]  or  max_k h_k
    z   = h W + b

W^(K) = W and h^(K) = h: nothing is propagated after the jump.
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
class JKNet:
    """Xu et al. 2018: the layers of a GCN joined (``cat`` or ``max``) in front of the last linear map."""

    layers: int = 3
    mode: str = "cat"

    def __post_init__(self) -> None:
        if self.mode not in ("cat", "max"):
            raise ValueError(f"mode={self.mode!r} is not a way to jump; choose among cat, max")

    def prepare(self, adjacency: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return symmetric(adjacency), x

    def build(self, config: ModelConfig, generators: Sequence[torch.Generator]) -> Replicas:
        return JKNetReplicas(self, config, generators)


class JKNetReplicas(Replicas):
    normalisation = "symmetric"
    head: Linear

    def __init__(self, backbone: JKNet, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.config, self.depth, self.mode = config, backbone.layers, backbone.mode
        widths = [config.in_channels] + [config.hidden_channels] * backbone.layers
        self.convs = Linears(Linear(i, o, generators, config.init) for i, o in pairwise(widths))
        jump = config.hidden_channels * (backbone.layers if backbone.mode == "cat" else 1)
        self.head = Linear(jump, config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        """h^(K)"""  # (R, n, D)
        layers: list[Tensor] = []
        for k, conv in enumerate(self.convs):
            z = field.propagate(conv.weight, drop) if k == 0 else field.hops[k] @ (layers[-1] @ conv.weight)
            layers = [field.select_self(h, k) for h in layers]
            layers.append(relu_dropout(z, conv.bias, drop, field.nodes[k + 1], self.config.dropout, layer=k + 1))
        layers = [field.select_output(h) for h in layers]
        return torch.cat(layers, -1) if self.mode == "cat" else torch.stack(layers).amax(0)

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        return self.head(self.hidden(field, drop))

    def representation(self, field: ReceptiveField) -> Tensor:
        return self.hidden(field, None)
