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

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from graphcal.engine.dropout import Dropout
from graphcal.engine.layers import by_node, drawn, elu
from graphcal.engine.operators import looped
from graphcal.engine.receptive import Field
from graphcal.engine.sparse import Sparse
from graphcal.models.config import Replicas, Shape


@dataclass(frozen=True)
class GAT:
    heads: int = 8
    output_heads: int = 1  # averaged; 8 for Pubmed in the paper
    elu_alpha: float = 1.0  # SCAR's code has 0.2

    def prepare(self, edges: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return looped(edges), x

    def build(self, shape: Shape, generators: Sequence[torch.Generator]) -> Replicas:
        return GATReplicas(self, shape, generators)


class Attention(nn.Module):
    """One attention layer of R replicas with ``heads`` heads of ``width`` units."""

    def __init__(
        self, inputs: int, width: int, heads: int, out: int, generators: Sequence[torch.Generator], init: str
    ) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.weight = drawn((inputs, heads * width), inputs, heads * width, generators, init)  # (R, in, K D)
        self.source = drawn((heads, width), heads, width, generators, init)  # (R, K, D)
        self.target = drawn((heads, width), heads, width, generators, init)
        self.bias = drawn((1, out), inputs, out, generators, init, bias=True)  # (R, 1, out)

    def shares(self, x: Tensor, field: Field, level: int, drop: Dropout | None, p: float) -> Tensor:
        """The attention of every edge, from the projected nodes (R, n, K D)."""  # (nnz, R K)
        hop, by_head = field.hops[level], x.unflatten(-1, (self.heads, self.width))  # (R, n, K, D)
        source = (by_head * self.source[:, None]).sum(-1)  # (R, n, K)
        target = (by_head * self.target[:, None]).sum(-1)
        shares = hop.attention(by_node(field.keep_own(target, level)), by_node(source), 0.2)
        if drop is None or p == 0:
            return shares
        return shares * by_node(drop.mask(hop.entries, self.heads, p, layer=16 + level))


def _attended(hop: Sparse, shares: Tensor, x: Tensor, heads: int) -> Tensor:
    """sum_j a_ij x_j for every head: (R, m, K D) -> (R, n, K, D)"""
    replicas, nodes, _ = x.shape
    stack = x.unflatten(-1, (heads, -1)).transpose(1, 2).reshape(replicas * heads, nodes, -1)  # (R K, m, D)
    return hop.weighted(shares, stack).unflatten(0, (replicas, heads)).transpose(1, 2)


class GATReplicas(Replicas):
    reads_edges = "attention"
    head: Attention
    depth = 2

    def __init__(self, spec: GAT, shape: Shape, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.shape, self.spec = shape, spec
        width = spec.heads * shape.hidden
        self.conv = Attention(shape.features, shape.hidden, spec.heads, width, generators, shape.init)
        self.head = Attention(width, shape.classes, spec.output_heads, shape.classes, generators, shape.init)

    def hidden(self, field: Field, drop: Dropout | None) -> Tensor:
        x = field.project(self.conv.weight, drop)
        shares = self.conv.shares(x, field, 0, drop, self.shape.dropout)
        h = _attended(field.hops[0], shares, x, self.spec.heads).flatten(2) + self.conv.bias
        h = elu(h, self.spec.elu_alpha)
        return h if drop is None else drop(h, field.nodes[1], self.shape.dropout, layer=1)

    def forward(self, field: Field, drop: Dropout | None = None) -> Tensor:
        return self.last(self.hidden(field, drop), field, drop)

    def last(self, h: Tensor, field: Field, drop: Dropout | None = None) -> Tensor:
        """The last layer on its input h (R, n, D)."""
        x = h @ self.head.weight
        shares = self.head.shares(x, field, 1, drop, self.shape.dropout)
        return _attended(field.hops[1], shares, x, self.spec.output_heads).mean(2) + self.head.bias

    def representation(self, field: Field, drop: Dropout | None = None) -> Tensor:
        h, heads = self.hidden(field, drop), self.spec.output_heads
        shares = self.head.shares(h @ self.head.weight, field, 1, drop, self.shape.dropout)
        return _attended(field.hops[1], shares, h.repeat(1, 1, heads), heads).flatten(2) / heads**0.5

    def centroids(self) -> tuple[Tensor, Tensor]:
        by_head = self.head.weight.unflatten(-1, (self.spec.output_heads, -1))  # (R, in, H, C)
        return by_head.transpose(1, 2).flatten(1, 2) / self.spec.output_heads**0.5, self.head.bias  # (R, H in, C)

    def final_parameters(self) -> list[nn.Parameter]:
        return [self.head.weight]
