"""GCNII: Chen et al., Simple and Deep Graph Convolutional Networks, ICML 2020 (arXiv 2007.02133), Eq. 5.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from graphcal.lab.engine.dropout import Dropout, kept_scale, relu_dropout
from graphcal.lab.engine.layers import Linear, Linears
from graphcal.lab.engine.operators import symmetric
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.models.replicas import ModelConfig, Replicas


@dataclass(frozen=True)
class GCNII:
    """Chen et al. 2020: a deep stack of convolutions with initial residual and identity mapping. Defaults: its Cora."""

    layers: int = 64
    alpha: float = 0.1
    theta: float = 0.5
    conv_weight_decay: float = 0.01  # of W_1 ... W_L, whatever the training's is
    two_weights: bool = False  # GCNII*

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise ValueError(f"GCNII: alpha={self.alpha} is the share of h_0 in every layer; choose 0 <= alpha < 1")

    def prepare(self, adjacency: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return symmetric(adjacency), x

    def build(self, config: ModelConfig, generators: Sequence[torch.Generator]) -> Replicas:
        return GCNIIReplicas(self, config, generators)


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
    head: Linear

    def __init__(self, backbone: GCNII, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.config, self.backbone, self.depth = config, backbone, backbone.layers
        width = config.hidden_channels
        self.first = Linear(config.in_channels, width, generators, config.init)
        inner = 2 * width if backbone.two_weights else width
        self.convs = Linears(Linear(inner, width, generators, "uniform", bias=False) for _ in range(backbone.layers))
        self.head = Linear(width, config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        """h^(K)"""  # (R, n, D)
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

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        return self.head(self.hidden(field, drop))

    def representation(self, field: ReceptiveField) -> Tensor:
        return self.hidden(field, None)

    def own_weight_decay(self) -> dict[nn.Parameter, float]:
        return dict.fromkeys(self.convs.parameters(), self.backbone.conv_weight_decay)
