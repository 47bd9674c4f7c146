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
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphcal.lab.engine.layers import Dropout, Linear, elu, init_param
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.models.replicas import GraphBackbone, ModelConfig, Replicas


class GATofCaGCNReplicas(Replicas):
    normalisation = "symmetric"
    head: Linear

    def __init__(self, backbone: GATofCaGCN, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__(config, depth=2)
        width = backbone.heads * config.hidden_channels
        # each branch is drawn as a layer of its own: fan-out is one branch's width
        fan_in, fan_out = config.in_channels, config.hidden_channels
        self.branches = init_param((fan_in, width), fan_in, fan_out, generators, config.init)
        self.head = Linear(width, config.num_classes, generators, config.init, bias=False)

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        h = elu(field.propagate(self.branches, drop))
        h = h if drop is None else drop(h, field.nodes[1], self.config.dropout, layer=1)
        return elu(field.hops[1] @ (h @ self.head.weight))

    def representation(self, field: ReceptiveField) -> None:
        return None

    def final_map(self) -> None:
        return None

    def final_parameters(self) -> list[nn.Parameter]:
        return [self.head.weight]


@dataclass(frozen=True)
class GATofCaGCN(GraphBackbone):
    """Eight graph convolutions side by side and an ELU on the logits: what CaGCN's code calls GAT."""

    heads: int = 8

    published: ClassVar[dict[str, dict[str, Any]]] = {
        "cagcn": {
            "source": "BUPT-GAMMA/CaGCN 6c42db0: models.py (SpGAT), layers.py; lr and dropout from its README's commands",
            "hidden_channels": 8,
            "dropout": 0.6,
            "input_dropout": 0.6,
            "lr": 0.005,
            "init": "xavier-normal",
            "pubmed": {"weight_decay": 1e-3},
        }
    }
    network = GATofCaGCNReplicas
