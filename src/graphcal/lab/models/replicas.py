"""Base classes of backbones, before and after training.

A `Backbone` (a frozen dataclass in `BACKBONES`) holds what is the architecture's own: layers, heads, teleport probability. It
builds a module of R `Replicas`; every parameter of it has the leading axis R, and no arithmetic mixes replicas. A trained replica
is an ordinary torch module on any graph (`TrainedGNN`), and can be run again on the graph it was trained on (`ModelOnGraph`).

*Weights on edges* (what DCGC learns): `EdgeWeightedModel` is a trained model as a function of them. A
weight w_ij on the edge j -> i enters the way the model normalises its edges; a self loop counts 1:

    symmetric   D^-1/2 (W + I) D^-1/2, D the row sums of W + I        as PyG's GCNConv
    mean        W divided by its row sums                             GraphSAGE
    attention   a_ij ~ w_ij exp(score_ij)                             GAT

With all weights 1 the logits are those of the trained model. The model itself is frozen: only the weights have a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import leaky_relu
from torch_geometric.data import Data

from graphcal.core import FinalLayer, Outputs
from graphcal.lab.engine.layers import Dropout
from graphcal.lab.engine.receptive import GraphInput, ReceptiveField, full_graph
from graphcal.lab.engine.sparse import Sparse, plain_adjacency, symmetric
from graphcal.observation.batches import feature_matrix
from graphcal.observation.recorder import Recorder, read_traced


class WeightedSparse(Sparse):
    """An operator with values of its own; the places of its entries are those of ``base``."""

    def __init__(self, base: Sparse, values: Tensor, log_weight: Tensor) -> None:
        super().__init__(base.offsets, base.indices, values, base.shape)
        self.base, self.log_weight = base, log_weight

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self.base.weighted(self.values[:, None].expand(-1, len(dense)).contiguous(), dense)

    def weighted(self, values: Tensor, dense: Tensor) -> Tensor:
        return self.base.weighted(values, dense)

    def edge_add(self, by_row: Tensor, by_col: Tensor) -> Tensor:
        return self.base.edge_add(by_row, by_col)

    def edge_softmax(self, scores: Tensor) -> Tensor:
        return self.base.edge_softmax(scores + self.log_weight[:, None])

    def attention(self, by_row: Tensor, by_col: Tensor, slope: float) -> Tensor:
        return self.edge_softmax(leaky_relu(self.edge_add(by_row, by_col), slope))


@dataclass(eq=False)
class WeightedField(ReceptiveField):
    """The whole graph with weighted hops. X W never changes: it is computed once for each weight."""

    projections: dict[int, Tensor] = field(default_factory=dict)

    def project(self, weight: Tensor, drop: Dropout | None = None, level: int = 0) -> Tensor:
        if id(weight) not in self.projections:
            with torch.no_grad():
                self.projections[id(weight)] = self.x.times(weight)
        return self.projections[id(weight)]

    def propagate(self, weight: Tensor, drop: Dropout | None = None) -> Tensor:
        return self.hops[0] @ self.project(weight)


@dataclass(frozen=True, eq=False)
class EdgeWeightedModel:
    """Logits (N, C) of a trained model from weights (E,), aligned with ``edge_index``."""

    model: nn.Module  # one replica: receptive field -> logits (1, N, C)
    normalisation: str  # symmetric, mean or attention
    full_graph: Callable[[], ReceptiveField]
    edge_index: Tensor
    projections: dict[int, Tensor] = field(default_factory=dict)

    def __call__(self, edge_weight: Tensor) -> Tensor:
        graph = self.full_graph()
        operator = graph.hops[0]
        edges, entry, loops = self._places
        weight = loops.index_add(0, entry, edge_weight.to(loops)[edges])  # (nnz,)
        hop = WeightedSparse(operator, self._values(weight, operator), weight.clamp(min=1e-12).log())
        hops = [hop] * len(graph.hops)
        weighted = WeightedField(graph.nodes, hops, graph.x, graph.self_index, projections=self.projections)
        logits: Tensor = functional_call(self.model, self._frozen, (weighted,))[0]
        return logits

    @cached_property
    def _frozen(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self.model.named_parameters()}

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Edges that are not loops, the entry of the operator each belongs to, and 1 for the entries that are loops."""
        operator, (source, target) = self.full_graph().hops[0], self.edge_index
        edges = (source != target).nonzero().flatten()
        key = operator.rows * operator.shape[1] + operator.cols  # ascending: entries stand row by row, columns sorted
        order = torch.argsort(key)
        wanted = target[edges] * operator.shape[1] + source[edges]
        entry = order[torch.searchsorted(key[order], wanted)]
        return edges, entry, (operator.rows == operator.cols).to(operator.values)

    def _values(self, weight: Tensor, operator: Sparse) -> Tensor:
        """The entries of the operator that these weights make, normalised."""  # (nnz,)
        degree = weight.new_zeros(operator.shape[0]).index_add(0, operator.rows, weight).clamp(min=1e-6)
        if self.normalisation == "symmetric":
            scale = degree.rsqrt()
            return weight * scale[operator.rows] * scale[operator.cols]
        return weight / degree[operator.rows] if self.normalisation == "mean" else weight


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
    """R replicas of a network whose last layer is ``head``; ``depth`` is how many hops the logits of a node reach."""

    head: nn.Module
    has_own_loss: bool = False  # trained by `loss`, not by the training's
    normalisation: str | None = None  # how a weight on an edge enters (engine/reweight.py); None: it cannot

    def __init__(self, config: ModelConfig, depth: int) -> None:
        super().__init__()
        self.config, self.depth = config, depth

    if TYPE_CHECKING:

        def __call__(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor: ...

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        """The last hidden layer of the output nodes."""  # (R, n, D)
        raise NotImplementedError

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        """Logits of the field's output nodes; with ``drop``, as in training."""  # (R, n, C)
        logits: Tensor = self.head(self.hidden(field, drop))
        return logits

    def representation(self, field: ReceptiveField) -> Tensor | None:
        """h^(K), such that logits = h^(K) W + b; None where the output is not linear in a last layer."""  # (R, n, D)
        return self.hidden(field, None)

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
        """Build one replica per generator."""
        ...


class GraphBackbone:
    """Base of backbones that read the features as they are, and one propagation matrix."""

    network: ClassVar[Callable[..., Replicas]]  # (settings, config, generators)
    operator: ClassVar[Any] = staticmethod(symmetric)  # propagation matrix of the plain adjacency

    def prepare(self, adjacency: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        return self.operator(adjacency), x

    def build(self, config: ModelConfig, generators: Sequence[torch.Generator]) -> Replicas:
        return self.network(self, config, generators)


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
        """Logits and last layer, with this handle; ``graph`` is the same graph with its labels and masks."""
        with torch.no_grad():
            logits = self.replicas(self.full_graph())[0]
        return Outputs(logits, graph, self.replicas.final_layer(0), self.hidden, self)

    def hidden(self) -> Tensor | None:
        """The representation (N, D) that enters the last linear map, seen in one pass."""
        with torch.no_grad(), Recorder() as record:
            logits = self.replicas(self.full_graph())[0]
        hidden = read_traced(logits, record).hidden()
        return hidden if isinstance(hidden, Tensor) else None

    def final_representation(self) -> Tensor | None:
        """h^(K) (N, D) of the last layer, by one pass; None where the output is not linear in one."""
        with torch.no_grad():
            h = self.replicas.representation(self.full_graph())
        return None if h is None else h[0]

    @cached_property
    def _edge_weighted(self) -> EdgeWeightedModel:
        normalisation = self.replicas.normalisation
        if normalisation is None:
            raise ValueError(f"{type(self.replicas).__name__} does not read weights on its edges")
        return EdgeWeightedModel(self.replicas, normalisation, self.full_graph, self.edge_index)


def _logits(replicas: Replicas, field: ReceptiveField, seed: int | None, number: int = 0) -> Tensor:
    """Logits (N, C) of the first replica; with a seed, of pass ``number`` with dropout."""
    return replicas(field, None if seed is None else Dropout([seed], number))[0]
