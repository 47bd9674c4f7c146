"""What every backbone is built from, and what every backbone offers.

A specification (frozen dataclass, in `BACKBONES`) holds what is the backbone's own: layers, heads, teleport probability. It makes
a module that holds R replicas; every parameter of it has the leading axis R, and no arithmetic mixes replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from graphcal.core import FinalLayer
from graphcal.engine.dropout import Dropout
from graphcal.engine.receptive import Field


@dataclass(frozen=True)
class Shape:
    """Sizes and the settings that training recipes choose."""

    features: int
    classes: int
    hidden: int
    dropout: float
    input_dropout: float
    init: str


class Replicas(nn.Module):
    """R replicas of a network whose last layer is ``head``."""

    shape: Shape
    depth: int  # how many hops the logits of a node reach
    head: nn.Module
    has_own_loss = False
    reads_edges: str | None = (
        None  # how a weight on an edge enters: symmetric, mean, attention (engine/reweight.py); None: it cannot
    )

    def forward(self, field: Field, drop: Dropout | None = None) -> Tensor:
        """Logits of the nodes the field asks for; with ``drop``, as in training."""  # (R, n, C)
        raise NotImplementedError

    def representation(self, field: Field, drop: Dropout | None = None) -> Tensor | None:
        """h^(K), such that logits = h^(K) weight^T + bias; None where the output is not linear in a last layer."""  # (R, n, D)
        raise NotImplementedError

    def centroids(self) -> tuple[Tensor, Tensor] | None:
        """The last layer: logits = h^(K) W + b. Every column of W is a class centroid; None as for `representation`."""
        return self.head.weight, self.head.bias  # type: ignore[return-value]  # (R, D, C), (R, 1, C)

    def final(self, replica: int) -> FinalLayer | None:
        """The last layer of one replica, seen from outside."""
        layer = self.centroids()
        return None if layer is None else FinalLayer.from_weight(layer[0][replica].T.contiguous(), layer[1][replica])

    def begin(self, y: Tensor, weights: Tensor) -> None:
        """Called once before training with the training nodes' classes (n,) and each replica's weights on them (R, n)."""

    def own_loss(self, logits: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """The loss of each replica, for backbones that are not trained by cross-entropy."""  # (R,)
        raise NotImplementedError

    def final_parameters(self) -> list[nn.Parameter]:
        """W^(K), whose decay is SCAR's lever, and its bias."""
        return list(self.head.parameters())

    def inner_parameters(self) -> list[nn.Parameter]:
        """Layers that some recipes decay differently from the first and the last (GCNII's convolutions)."""
        return []


@runtime_checkable
class Spec(Protocol):
    """The settings of a backbone, and how to make it."""

    def prepare(self, edges: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """The propagation matrix and the input, from the plain adjacency and the features."""
        ...

    def build(self, shape: Shape, generators: Sequence[torch.Generator]) -> Replicas:
        """As many replicas as there are generators, each drawn from its own."""
        ...
