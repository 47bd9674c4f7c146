"""GPN: Stadler et al., Graph Posterior Network, NeurIPS 2021 (arXiv 2110.14012); a backbone with its own uncertainty.

    x      = latent code of a node:  drop(relu(X W_1 + b_1)) W_2 + b_2
    b_ic   = exp(clamp(log q(x_i | c) + log p(c) + d/2 log 4 pi, -30, 30))       evidence; q: a radial flow for each class
    B      = APPNP propagation of b,   alpha = 1 + B,   p = alpha / sum_c alpha
    loss   = sum over training nodes of  digamma(alpha_0) - digamma(alpha_y) - entropy * H(Dir(alpha))

A radial flow (Rezende & Mohamed 2015) is a stack of  x <- x + b h (x - x_0),  h = 1 / (a + |x - x_0|),  a > 0,  b > -a, with
log|det| = (d - 1) log(1 + b h) + log(1 + b h - b h^2 |x - x_0|), in front of a standard normal law.

The logits are log alpha: softmax gives p, and ``out.logits.exp().sum(-1)`` is the total evidence, low far from the training data.
There is no final linear layer, so SCAR does not apply. In the first epochs only the flows are trained.

Departures: the warm-up epochs are the first of the one training (the official code runs them before it, with moments of
their own); the flows' start is uniform in +-1/sqrt(d) as in that code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi

import torch
from torch import Tensor, nn

from graphcal.lab.engine.layers import Dropout, Linear, init_param, relu_dropout
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.models.replicas import GraphBackbone, ModelConfig, Replicas


class RadialFlows(nn.Module):
    """Densities on the latent space, one per replica and class."""

    def __init__(self, latent: int, classes: int, flows: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.centre = init_param((flows, classes, 1, latent), 1, latent, generators, "uniform")  # (R, L, C, 1, d)
        self.a = init_param((flows, classes, 1, 1), 1, latent, generators, "uniform")
        self.b = init_param((flows, classes, 1, 1), 1, latent, generators, "uniform")

    def forward(self, x: Tensor) -> Tensor:
        """log q(x | c): (R, n, d) -> (R, C, n)"""
        d = x.shape[-1]
        x = x[:, None]  # (R, 1, n, d)
        log_det = x.new_zeros(())
        for layer in range(self.centre.shape[1]):
            a = _softplus(self.a[:, layer])  # (R, C, 1, 1)
            b = _softplus(self.b[:, layer]) - a
            away = x - self.centre[:, layer]  # (R, C, n, d)
            r = away.square().sum(-1, keepdim=True).clamp(min=1e-12).sqrt()
            bh = b / (a + r)
            x = x + bh * away
            log_det = log_det + (d - 1) * (1 + bh).log() + (1 + bh - bh * r / (a + r)).log()
        normal = -0.5 * (x.square().sum(-1, keepdim=True) + d * log(2 * pi))
        return (normal + log_det)[..., 0]


class GPNReplicas(Replicas):
    head: RadialFlows
    has_own_loss = True

    def __init__(self, backbone: GPN, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__(config, backbone.hops)
        self.backbone = backbone
        self.first = Linear(config.in_channels, config.hidden_channels, generators, config.init)
        self.code = Linear(config.hidden_channels, backbone.latent, generators, config.init)
        self.head = RadialFlows(backbone.latent, config.num_classes, backbone.flows, generators)
        uniform = torch.full((len(generators), config.num_classes, 1), -log(config.num_classes))
        self.log_prior = nn.Parameter(uniform, requires_grad=False)  # (R, C, 1) of the training classes

    def on_train_start(self, y: Tensor, weights: Tensor) -> None:
        shares = weights @ nn.functional.one_hot(y, self.config.num_classes).to(weights.dtype)  # (R, C)
        with torch.no_grad():
            self.log_prior.copy_(shares.clamp(min=1e-12).log()[..., None])

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        """log alpha"""
        z = field.project(self.first.weight, drop)
        h = relu_dropout(z, self.first.bias, drop, field.nodes[0], self.config.dropout, layer=1)
        x = self.code(h)
        if drop is not None and drop.number < self.backbone.warmup:
            x = x.detach()
        scale = 0.5 * self.backbone.latent * log(4 * pi)
        b = (self.head(x) + self.log_prior + scale).clamp(-30, 30).exp().transpose(1, 2)  # (R, n, C)
        evidence, a = b.contiguous(), self.backbone.teleport
        for k, hop in enumerate(field.hops):
            b = field.select_self(b, k)
            evidence = (1 - a) * (hop @ evidence) + a * b
        return (1 + field.select_output(evidence)).log()

    def loss(self, logits: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        alpha = logits.double().exp()  # up to e^30: single precision would lose the differences below
        total, true = alpha.sum(-1), alpha.gather(-1, y.expand(len(alpha), -1)[..., None])[..., 0]  # (R, n)
        uncertain = torch.digamma(total) - torch.digamma(true)
        law = torch.distributions.Dirichlet(alpha, validate_args=False)
        entropy: Tensor = law.entropy()
        loss = uncertain - self.backbone.entropy * entropy
        return (loss * (weights > 0)).sum(1).float()

    def representation(self, field: ReceptiveField) -> None:
        return None

    def final_map(self) -> None:
        return None

    def final_parameters(self) -> list[nn.Parameter]:
        return []

    def own_weight_decay(self) -> dict[nn.Parameter, float]:
        return dict.fromkeys(self.head.parameters(), self.backbone.flow_weight_decay)


@dataclass(frozen=True)
class GPN(GraphBackbone):
    """Stadler et al. 2021: evidence by a normalising flow per class, propagated; logits are log alpha of a Dirichlet law."""

    latent: int = 16
    flows: int = 10
    hops: int = 10
    teleport: float = 0.1
    entropy: float = 1e-4
    warmup: int = 5  # epochs
    flow_weight_decay: float = 0.0  # of the flows, whatever the training's is
    network = GPNReplicas


def _softplus(x: Tensor) -> Tensor:
    return (x.exp() + 1).log()
