"""One trained replica as an ordinary torch module: ``model(x, edge_index) -> logits (N, C)`` on any graph.

In training mode (``model.train()``) dropout is active, its numbers started from torch's own generator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from graphcal.core import FinalLayer
from graphcal.engine.cutting import Graph, whole
from graphcal.engine.dropout import Dropout
from graphcal.engine.operators import feature_matrix, plain_adjacency
from graphcal.engine.receptive import Field
from graphcal.engine.reweight import Rerun
from graphcal.models.config import Replicas, Spec


class SingleModel(nn.Module):
    """``replicas`` holds exactly one replica, made by ``spec``."""

    def __init__(self, spec: Spec, replicas: Replicas) -> None:
        super().__init__()
        self.spec = spec
        self.replicas = replicas

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        drop = Dropout([int(torch.randint(2**62, ()))], 0) if self.training else None
        return self.replicas(self._field(x, edge_index), drop)[0]  # (N, C)

    def sample(self, x: Tensor, edge_index: Tensor, seed: int, passes: int) -> Tensor:
        """Logits of several passes with dropout: the samples of MC dropout."""  # (passes, N, C)
        field = self._field(x, edge_index)
        with torch.no_grad():
            return torch.cat([self.replicas(field, Dropout([seed], number)) for number in range(passes)])

    def final_representation(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, FinalLayer] | None:
        """h^(K) and the last layer, logits = h @ weight.T + bias; None when the output is not linear in a last layer."""
        hidden, final = self.replicas.representation(self._field(x, edge_index)), self.replicas.final(0)
        return None if hidden is None or final is None else (hidden[0], final)

    def _field(self, x: Tensor, edge_index: Tensor) -> Field:
        operator, prepared = self.spec.prepare(plain_adjacency(edge_index, x.shape[0]), feature_matrix(x))
        device = next(self.replicas.parameters()).device
        dropout = self.replicas.shape.input_dropout
        return whole(Graph(operator, prepared, device, dropout), self.replicas.depth)


@dataclass(frozen=True, eq=False)
class OnGraph:
    """A trained replica on one graph, to be run again: the `ModelHandle` of our own models."""

    replicas: Replicas  # one
    field: Callable[[], Field]  # of the whole graph
    edge_index: Tensor

    @cached_property
    def _weighted(self) -> Rerun:
        reads = self.replicas.reads_edges
        if reads is None:
            raise ValueError(f"{type(self.replicas).__name__} does not read weights on its edges")
        return Rerun(reads, self.replicas, self.field, self.edge_index)

    def logits(self, edge_weight: Tensor | None = None, dropout: torch.Generator | None = None) -> Tensor:
        if edge_weight is not None:
            return self._weighted(edge_weight)
        drop = None if dropout is None else Dropout([int(torch.randint(2**62, (), generator=dropout))], 0)
        with torch.no_grad():
            return self.replicas(self.field(), drop)[0]
