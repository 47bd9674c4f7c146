"""A trained model: as an ordinary torch module on any graph (`TrainedGNN`), and on one graph to be run again (`ModelOnGraph`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphcal.core import FinalLayer, Outputs
from graphcal.engine.dropout import Dropout
from graphcal.engine.operators import feature_matrix, plain_adjacency
from graphcal.engine.receptive import GraphInput, ReceptiveField, full_graph
from graphcal.engine.reweight import EdgeWeightedModel
from graphcal.models.config import Backbone, ModelConfig, Replicas


def graph_input(backbone: Backbone, x: Tensor, edge_index: Tensor, input_dropout: float) -> GraphInput:
    """A graph as the backbone reads it."""
    operator, prepared = backbone.prepare(plain_adjacency(edge_index, x.shape[0]), feature_matrix(x))
    return GraphInput(operator, prepared, edge_index.device, input_dropout)


class TrainedGNN(nn.Module):
    """``model(x, edge_index) -> logits (N, C)`` on any graph; ``replicas`` holds exactly one replica.

    In training mode (``model.train()``) dropout is active, its numbers started from torch's own generator.
    """

    def __init__(self, backbone: Backbone, replicas: Replicas) -> None:
        super().__init__()
        self.backbone = backbone
        self.replicas = replicas

    @classmethod
    def from_state(cls, backbone: Backbone, config: ModelConfig, state: Mapping[str, Tensor]) -> TrainedGNN:
        """The model with these parameters, on their device."""
        replicas = backbone.build(config, [torch.Generator()]).to(next(iter(state.values())).device)
        replicas.load_state_dict(state)
        return cls(backbone, replicas).eval()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        seed = int(torch.randint(2**62, ())) if self.training else None
        return _logits(self.replicas, self._full_graph(x, edge_index), seed)

    def sample(self, x: Tensor, edge_index: Tensor, seed: int, passes: int) -> Tensor:
        """Logits of several passes with dropout: the samples of MC dropout."""  # (passes, N, C)
        graph = self._full_graph(x, edge_index)
        with torch.no_grad():
            return torch.stack([_logits(self.replicas, graph, seed, number) for number in range(passes)])

    def final_representation(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, FinalLayer] | None:
        """h^(K) and the last layer, logits = h @ weight.T + bias; None when the output is not linear in a last layer."""
        return _final_representation(self.replicas, self._full_graph(x, edge_index))

    def on(self, data: Data, field: ReceptiveField | None = None) -> ModelOnGraph:
        """The model on a graph. The graph is prepared when first needed, unless its ``field`` is known already."""
        if field is not None:
            return ModelOnGraph(self.replicas, lambda: field, data.edge_index)
        return ModelOnGraph(self.replicas, cache(lambda: self._full_graph(data.x, data.edge_index)), data.edge_index)

    def _full_graph(self, x: Tensor, edge_index: Tensor) -> ReceptiveField:
        graph = graph_input(self.backbone, x, edge_index, self.replicas.config.input_dropout)
        return full_graph(graph, self.replicas.depth)


@dataclass(frozen=True, eq=False)
class ModelOnGraph:
    """A trained replica on one graph, to be run again: the `graphcal.core.ModelHandle` of our own models."""

    replicas: Replicas  # one
    full_graph: Callable[[], ReceptiveField]
    edge_index: Tensor

    def logits(self, edge_weight: Tensor | None = None, dropout: torch.Generator | None = None) -> Tensor:
        if edge_weight is not None:
            return self._edge_weighted(edge_weight)
        seed = None if dropout is None else int(torch.randint(2**62, (), generator=dropout))
        with torch.no_grad():
            return _logits(self.replicas, self.full_graph(), seed)

    def outputs(self, graph: Data) -> Outputs:
        """Logits, last layer and h^(K), with this handle; ``graph`` is the same graph with its labels and masks."""
        field = self.full_graph()
        with torch.no_grad():
            logits, seen = self.replicas(field)[0], _final_representation(self.replicas, field)
        hidden, final = (None, None) if seen is None else seen
        return Outputs(logits, graph, final, hidden, self)

    @cached_property
    def _edge_weighted(self) -> EdgeWeightedModel:
        normalisation = self.replicas.normalisation
        if normalisation is None:
            raise ValueError(f"{type(self.replicas).__name__} does not read weights on its edges")
        return EdgeWeightedModel(self.replicas, normalisation, self.full_graph, self.edge_index)


def _final_representation(replicas: Replicas, field: ReceptiveField) -> tuple[Tensor, FinalLayer] | None:
    """h^(K) (N, D) and the last layer of the first replica."""
    hidden, final = replicas.representation(field), replicas.final_layer(0)
    return None if hidden is None or final is None else (hidden[0], final)


def _logits(replicas: Replicas, field: ReceptiveField, seed: int | None, number: int = 0) -> Tensor:
    """Logits (N, C) of the first replica; with a seed, of pass ``number`` with dropout."""
    return replicas(field, None if seed is None else Dropout([seed], number))[0]
