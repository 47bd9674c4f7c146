"""GAT: Veličković et al., Graph Attention Networks, ICLR 2018 (arXiv 1710.10903).

    x_i  = W h_i (for each of K heads)
    a_ij = softmax_j LeakyReLU_0.2(a_dst^T x_i + a_src^T x_j),  j over the neighbours of i and i itself
    h_i <- ELU of the K heads' sum_j drop(a_ij) x_j + b, side by side;  the last layer averages its heads and has no ELU

W^(K) is the last layer's W. Its map is linear, so with one head h^(K)_i = sum_j a_ij h_j and z = h^(K) W + b. With H averaged
heads z = b + 1/H sum_k W_k h^(K,k): the heads are stacked, each divided by sqrt(H). Reducing the decay of W also sharpens the
attention, because the scores are functions of W h; the attention vectors and the bias keep the other layers' decay (as in SCAR's
code).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn

from graphcal.lab.engine.layers import Dropout, elu, init_param, nodes_first
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.engine.sparse import Sparse, add_self_loops
from graphcal.lab.models.replicas import GraphBackbone, ModelConfig, Replicas


class Attention(nn.Module):
    """One attention layer of R replicas with ``heads`` heads of ``width`` units."""

    def __init__(
        self, inputs: int, width: int, heads: int, out: int, generators: Sequence[torch.Generator], init: str
    ) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.weight = init_param((inputs, heads * width), inputs, heads * width, generators, init)  # (R, in, K D)
        self.source = init_param((heads, width), heads, width, generators, init)  # (R, K, D)
        self.target = init_param((heads, width), heads, width, generators, init)
        self.bias = init_param((1, out), inputs, out, generators, init, bias=True)  # (R, 1, out)

    def shares(self, x: Tensor, field: ReceptiveField, level: int, drop: Dropout | None, p: float) -> Tensor:
        """The attention of every edge, from the projected nodes (R, n, K D)."""  # (nnz, R K)
        hop, by_head = field.hops[level], x.view(*x.shape[:2], self.heads, self.width)  # (R, n, K, D)
        source = (by_head * self.source[:, None]).sum(-1)  # (R, n, K)
        target = (by_head * self.target[:, None]).sum(-1)
        shares = hop.attention(nodes_first(field.select_self(target, level)), nodes_first(source), 0.2)
        if drop is None or p == 0:
            return shares
        return shares * nodes_first(drop.mask(hop.entries, self.heads, p, layer=16 + level))


def _attended(hop: Sparse, shares: Tensor, x: Tensor, heads: int) -> Tensor:
    """sum_j a_ij x_j for every head: (R, m, K D) -> (R, n, K, D)"""
    replicas, nodes, _ = x.shape
    stack = x.view(replicas, nodes, heads, -1).transpose(1, 2).reshape(replicas * heads, nodes, -1)  # (R K, m, D)
    attended = hop.weighted(shares, stack)  # (R K, n, D)
    return attended.view(replicas, heads, *attended.shape[1:]).transpose(1, 2)


class GATReplicas(Replicas):
    normalisation = "attention"
    head: Attention

    def __init__(self, backbone: GAT, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__(config, depth=2)
        self.backbone = backbone
        width = backbone.heads * config.hidden_channels
        self.conv = Attention(
            config.in_channels, config.hidden_channels, backbone.heads, width, generators, config.init
        )
        self.head = Attention(
            width, config.num_classes, backbone.output_heads, config.num_classes, generators, config.init
        )

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        """The input of the last layer."""  # (R, n, K D)
        x = field.project(self.conv.weight, drop)
        shares = self.conv.shares(x, field, 0, drop, self.config.dropout)
        h = _attended(field.hops[0], shares, x, self.backbone.heads).flatten(2) + self.conv.bias
        h = elu(h, self.backbone.elu_alpha)
        return h if drop is None else drop(h, field.nodes[1], self.config.dropout, layer=1)

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        return self.last_layer(self.hidden(field, drop), field, drop)

    def last_layer(self, h: Tensor, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        """The last layer on its input h (R, n, D)."""
        x = h @ self.head.weight
        shares = self.head.shares(x, field, 1, drop, self.config.dropout)
        return _attended(field.hops[1], shares, x, self.backbone.output_heads).mean(2) + self.head.bias

    def representation(self, field: ReceptiveField) -> Tensor:
        h, heads = self.hidden(field, None), self.backbone.output_heads
        shares = self.head.shares(h @ self.head.weight, field, 1, None, 0.0)
        return _attended(field.hops[1], shares, h.repeat(1, 1, heads), heads).flatten(2) / sqrt(heads)

    def final_map(self) -> tuple[Tensor, Tensor]:
        weight, heads = self.head.weight, self.backbone.output_heads
        by_head = weight.view(*weight.shape[:2], heads, -1)  # (R, in, H, C)
        return by_head.transpose(1, 2).flatten(1, 2) / sqrt(heads), self.head.bias  # (R, H in, C)

    def final_parameters(self) -> list[nn.Parameter]:
        return [self.head.weight]


@dataclass(frozen=True)
class GAT(GraphBackbone):
    """Veličković et al. 2018: two attention layers; the first puts its heads side by side, the last averages them."""

    heads: int = 8
    output_heads: int = 1  # averaged; 8 for Pubmed in the paper
    elu_alpha: float = 1.0  # SCAR's code has 0.2
    network = GATReplicas
    operator = staticmethod(add_self_loops)
