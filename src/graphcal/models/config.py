"""What every backbone is built from, and what every backbone offers.

A `Backbone` (a frozen dataclass in `BACKBONES`) holds what is the architecture's own: layers, heads, teleport probability. It
builds a module of R `Replicas`; every parameter of it has the leading axis R, and no arithmetic mixes replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from graphcal.core import FinalLayer
from graphcal.engine.dropout import Dropout
from graphcal.engine.receptive import ReceptiveField


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the graph, and what a `Training` chooses of the model."""

    in_channels: int
    hidden_channels: int
    num_classes: int
    dropout: float
    input_dropout: float
    init: str


class Replicas(nn.Module):
    """R replicas of a network whose last layer is ``head``."""

    config: ModelConfig
    depth: int  # how many hops the logits of a node reach
    head: nn.Module
    has_own_loss: bool = False  # trained by `loss`, not by the training's
    normalisation: str | None = None  # how a weight on an edge enters (engine/reweight.py); None: it cannot

    if TYPE_CHECKING:

        def __call__(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor: ...

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        """Logits of the field's output nodes; with ``drop``, as in training."""  # (R, n, C)
        raise NotImplementedError

    def representation(self, field: ReceptiveField) -> Tensor | None:
        """h^(K), such that logits = h^(K) W + b; None where the output is not linear in a last layer."""  # (R, n, D)
        raise NotImplementedError

    def final_map(self) -> tuple[Tensor, Tensor] | None:
        """W and b of the last layer. Every column of W is a class centroid; None as for `representation`."""
        return self.head.weight, self.head.bias  # type: ignore[return-value]  # (R, D, C), (R, 1, C)

    def final_layer(self, replica: int) -> FinalLayer | None:
        """The last layer of one replica, seen from outside."""
        layer = self.final_map()
        return None if layer is None else FinalLayer.from_weight(layer[0][replica].T.contiguous(), layer[1][replica])

    def final_parameters(self) -> list[nn.Parameter]:
        """W^(K), whose decay is SCAR's lever, and its bias."""
        return list(self.head.parameters())

    def own_weight_decay(self) -> dict[nn.Parameter, float]:
        """Parameters whose weight decay is the backbone's, not the training's (GCNII's convolutions, GPN's flows)."""
        return {}

    def on_train_start(self, y: Tensor, weights: Tensor) -> None:
        """Called once before training with the training nodes' classes (n,) and each replica's weights on them (R, n)."""

    def loss(self, logits: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """The loss of each replica, for models that are not trained by cross-entropy (``has_own_loss``)."""  # (R,)
        raise NotImplementedError


@runtime_checkable
class Backbone(Protocol):
    """The settings of an architecture, and how to build it."""

    def prepare(self, adjacency: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """The propagation matrix and the input, from the plain adjacency and the features."""
        ...

    def build(self, config: ModelConfig, generators: Sequence[torch.Generator]) -> Replicas:
        """As many replicas as there are generators, each drawn from its own."""
        ...
