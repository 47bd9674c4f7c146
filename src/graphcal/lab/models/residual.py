"""Networks that give the first layer's values to every propagation step.

APPNP: Gasteiger (Klicpera), Bojchevski & Günnemann, Predict then Propagate, ICLR 2019 (arXiv 1810.05997).

    H   = dropout(relu(X W_1 + b_1)) W_2 + b_2
    Z_0 = H,   Z_{k+1} = (1 - a) drop(A) Z_k + a H,   z = Z_K        A = D^-1/2 (Adj + I) D^-1/2

Propagation is linear: z = P h W_2 + (P 1) b_2 with P = (1-a)^K A^K + a sum_k (1-a)^k A^k. The rows of P do not sum to one, so the
bias is a column of the final layer: h^(K) = [P h, P 1] and W^(K) = [W_2; b_2], without a further bias.

Departures: none from the paper; its dropout of the adjacency in every step is ``edge_dropout``.

GCNII: Chen et al., Simple and Deep Graph Convolutional Networks, ICML 2020 (arXiv 2007.02133), Eq. 5.

    h_0 = relu(drop(X) W_0 + b_0)
    s_l = (1 - a) A drop(h_{l-1}) + a h_0,   h_l = relu((1 - t_l) s_l + t_l s_l W_l),   t_l = log(theta / l + 1)
    z   = drop(h_L) W + b

GCNII* (`two_weights`) gives A h and h_0 a weight each: h_l = relu((1 - t_l) s_l + t_l [A h, h_0] W_l).

W^(K) = W and h^(K) = h_L: nothing is propagated after the last convolution. The official code decays W_0 and W in one group;
SCAR's lever must move W alone, so they are two here. The convolutions have a decay of their own (`conv_weight_decay`).

Without the second weight a layer is relu((A drop(h) + a / (1 - a) h_0) M_l) with M_l = (1 - a) ((1 - t_l) I + t_l W_l): one
product does the work of a product and a sum. A deep network spends much of its time on passes over its nodes, so a layer makes as
few as it can, and M_l also has the factor 1 / (1 - p) of dropout.

Departures: the convolutions start uniform in +-1/sqrt(out) as in the official code, whatever the training's ``init`` says for the
two linear layers (whose official law is ``linear``).

FAGCN: Bo et al., Beyond Low-frequency Information in Graph Convolutional Networks, AAAI 2021 (arXiv 2101.00797).

    h_0 = drop(relu(drop(X) W_1 + b_1))
    e_ij = tanh(g^T [h_i, h_j] + c) / sqrt(d_i d_j),   h_i <- eps h_0i + sum_j drop(e_ij) h_j        without self loops
    z   = h W + b

A coefficient may be negative: a node may read the difference to a neighbour. W^(K) = W and h^(K) is the last h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import torch
from torch import Tensor, nn

from graphcal.lab.engine.layers import Dropout, Linear, Linears, kept_scale, nodes_first, relu_dropout, tanh
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.engine.sparse import Sparse, symmetric_no_loops
from graphcal.lab.models.replicas import GraphBackbone, ModelConfig, Replicas


class APPNPReplicas(Replicas):
    normalisation = "symmetric"

    def __init__(self, backbone: APPNP, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__(config, backbone.hops)
        self.backbone = backbone
        self.first = Linear(config.in_channels, config.hidden_channels, generators, config.init)
        self.head: Linear = Linear(config.hidden_channels, config.num_classes, generators, config.init)

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


@dataclass(frozen=True)
class APPNP(GraphBackbone):
    """Gasteiger et al. 2019: an MLP, then ``hops`` steps of personalised PageRank."""

    hops: int = 10
    teleport: float = 0.1
    edge_dropout: float = 0.5
    network = APPNPReplicas


def _read(hop: Sparse, z: Tensor, drop: Dropout | None, p: float, layer: int) -> Tensor:
    """drop(A) Z"""
    if drop is None or p == 0:
        return hop @ z
    mask = drop.mask(hop.entries, 1, p, layer)[..., 0]  # (R, nnz)
    return hop.weighted((mask * hop.values).T, z)


class _Mixing(torch.autograd.Function):
    """relu((propagated + start) M) * kept, kept 0 or 1: (R, n, D) -> (R, n, D)

    Where the result is positive, the gradient passes.
    """

    @staticmethod
    def forward(ctx: Any, propagated: Tensor, start: Tensor, mixing: Tensor, kept: Tensor | None) -> Tensor:
        s = propagated + start
        out = torch.bmm(s, mixing).relu_()
        if kept is not None:
            out.mul_(kept)
        ctx.save_for_backward(s, mixing, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        s, mixing, out = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grad, out, 0)
        to_s = torch.bmm(grad, mixing.transpose(1, 2))
        return to_s, to_s, torch.bmm(s.transpose(1, 2), grad), None


class GCNIIReplicas(Replicas):
    normalisation = "symmetric"

    def __init__(self, backbone: GCNII, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__(config, backbone.layers)
        self.backbone = backbone
        width = config.hidden_channels
        self.first = Linear(config.in_channels, width, generators, config.init)
        inner = 2 * width if backbone.two_weights else width
        self.convs = Linears(Linear(inner, width, generators, "uniform", bias=False) for _ in range(backbone.layers))
        self.head = Linear(width, config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        h0 = (field.project(self.first.weight, drop) + self.first.bias).relu()
        h = h0 if drop is None else drop(h0, field.nodes[0], self.config.dropout, layer=1)
        layers = self._two_weights if self.backbone.two_weights else self._one_weight
        return field.select_output(layers(h, h0, field, drop))

    def _one_weight(self, h: Tensor, h0: Tensor, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        a, p = self.backbone.alpha, self.config.dropout if drop is not None else 0.0
        start, factor = a / (1 - a) * h0, (1 - a) * kept_scale(p)
        one = torch.eye(self.config.hidden_channels, device=h.device)
        for k, conv in enumerate(self.convs):
            start = field.select_self(start, k)
            kept = drop.kept(field.nodes[k + 1], h.shape[-1], p, layer=k + 2) if drop is not None and p > 0 else None
            t = self._strength(k)
            mixing = factor * (t * conv.weight + (1 - t) * one)
            h = _Mixing.apply(field.hops[k] @ h, start, mixing, kept)  # type: ignore[no-untyped-call]
        return h

    def _two_weights(self, h: Tensor, h0: Tensor, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        a, p = self.backbone.alpha, self.config.dropout
        for k, conv in enumerate(self.convs):
            h0 = field.select_self(h0, k)
            propagated = field.hops[k] @ h
            s = torch.add((1 - a) * propagated, h0, alpha=a)
            t = self._strength(k)
            z = torch.baddbmm(s, torch.cat([propagated, h0], -1), conv.weight, beta=1 - t, alpha=t)
            h = relu_dropout(z, None, drop, field.nodes[k + 1], p, layer=k + 2)
        return h

    def _strength(self, k: int) -> float:
        return log(self.backbone.theta / (k + 1) + 1)

    def own_weight_decay(self) -> dict[nn.Parameter, float]:
        return dict.fromkeys(self.convs.parameters(), self.backbone.conv_weight_decay)


@dataclass(frozen=True)
class GCNII(GraphBackbone):
    """Chen et al. 2020: a deep stack of convolutions with initial residual and identity mapping. Defaults: its Cora."""

    layers: int = 64
    alpha: float = 0.1
    theta: float = 0.5
    conv_weight_decay: float = 0.01  # of W_1 ... W_L, whatever the training's is
    two_weights: bool = False  # GCNII*
    network = GCNIIReplicas

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise ValueError(f"GCNII: alpha={self.alpha} is the share of h_0 in every layer; choose 0 <= alpha < 1")


class FAGCNReplicas(Replicas):
    def __init__(self, backbone: FAGCN, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__(config, backbone.layers)
        self.backbone = backbone
        self.first = Linear(config.in_channels, config.hidden_channels, generators, config.init)
        self.gates = Linears(
            Linear(2 * config.hidden_channels, 1, generators, config.init) for _ in range(backbone.layers)
        )
        self.head = Linear(config.hidden_channels, config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        p = self.config.dropout
        h = raw = relu_dropout(
            field.project(self.first.weight, drop), self.first.bias, drop, field.nodes[0], p, layer=1
        )
        for k, gate in enumerate(self.gates):
            hop = field.hops[k]
            mine, others = gate.weight.transpose(1, 2).chunk(2, dim=-1)  # (R, 1, H)
            by_row = (field.select_self(h, k) * mine).sum(-1, keepdim=True) + gate.bias  # (R, n, 1)
            by_col = (h * others).sum(-1, keepdim=True)
            e = tanh(hop.edge_add(nodes_first(by_row), nodes_first(by_col))) * hop.values[:, None]  # (nnz, R)
            if drop is not None and p > 0:
                e = e * drop.mask(hop.entries, 1, p, layer=k + 2)[..., 0].T
            raw = field.select_self(raw, k)
            h = self.backbone.eps * raw + hop.weighted(e, h)
        return field.select_output(h)


@dataclass(frozen=True)
class FAGCN(GraphBackbone):
    """Bo et al. 2021: propagation with signed, learned coefficients; reads differences as well as means."""

    layers: int = 2
    eps: float = 0.3
    network = FAGCNReplicas
    operator = staticmethod(symmetric_no_loops)
