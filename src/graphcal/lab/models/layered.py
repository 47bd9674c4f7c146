"""Networks of a few layers: graph convolutions, their relatives, and the perceptron that ignores the graph.

GCN: Kipf & Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017 (arXiv 1609.02907).

    h_1 = dropout(relu(A X W_1 + b_1))        A = D^-1/2 (Adj + I) D^-1/2, D the degrees of Adj + I
    z   = A h_1 W_2 + b_2

W^(K) = W_2 and h^(K) = A h_1: propagation and the linear map commute, so z = h^(K) W^(K) + b_2.

Departures: the paper has 16 hidden units, no bias, dropout on the input too and decay on W_1 only; what is trained here is
chosen by `graphcal.lab.training.Training`, by default as CaGCN has it: 64 units, bias, dropout on the hidden layer only.

GraphSAGE with the mean aggregator: Hamilton, Ying & Leskovec, NeurIPS 2017 (arXiv 1706.02216).

    h_i = dropout(relu(mean_{j in N(i)} x_j W_n + x_i W_r + b)),  ...,  z_i = [mean_j h_j, h_i] W^(K) + b

W^(K) stacks the neighbours' and the root's matrices, h^(K) = [mean_j h_j, h_i]; its Gram matrix is the sum of the two.

Departures: full neighbourhoods instead of samples, and no scaling of the rows to length one (as in PyG's SAGEConv).

JK-Net: Xu et al., Representation Learning on Graphs with Jumping Knowledge Networks, ICML 2018 (arXiv 1806.03536).

    h_k = dropout(relu(A h_{k-1} W_k + b_k)),  k = 1..L        h = [h_1, ..., h_L]  or  max_k h_k
    z   = h W + b

W^(K) = W and h^(K) = h: nothing is propagated after the jump.

SGC: Wu et al., Simplifying Graph Convolutional Networks, ICML 2019 (arXiv 1902.07153).

    z = A^K X W + b        A = D^-1/2 (Adj + I) D^-1/2

W^(K) = W, the only matrix there is, and h^(K) = A^K X, computed once. SCAR's class-centroid-level lever is then the whole decay.

MLP: the network that ignores the graph, the yardstick for what the edges add.

    h_1 = dropout(relu(X W_1 + b_1)),  ...,  z = h_{K-1} W_K + b_K

W^(K) = W_K and h^(K) = h_{K-1}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import scipy.sparse as sp
import torch
from torch import Tensor

from graphcal.lab.engine.layers import Dropout, Linear, Linears, relu_dropout
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.engine.sparse import mean, no_edges, symmetric
from graphcal.lab.models.replicas import GraphBackbone, ModelConfig, Replicas


def _widths(config: ModelConfig, layers: int, name: str, instead: str = "") -> list[int]:
    """The widths of the input and of each hidden layer."""
    if layers < 2:
        raise ValueError(f"{name} has at least 2 layers; got layers={layers}{instead}")
    return [config.in_channels] + [config.hidden_channels] * (layers - 1)


class GCNReplicas(Replicas):
    normalisation = "symmetric"

    def __init__(self, backbone: GCN, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__(config, backbone.layers)
        widths = _widths(config, backbone.layers, "a GCN", " (one layer is sgc with hops=1)")
        self.convs = Linears(Linear(i, o, generators, config.init) for i, o in pairwise(widths))
        self.head: Linear = Linear(widths[-1], config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        """The last hidden layer, before its propagation."""  # (R, n, H)
        h = torch.empty(0)
        for k, conv in enumerate(self.convs):
            z = field.propagate(conv.weight, drop) if k == 0 else field.hops[k] @ (h @ conv.weight)
            h = relu_dropout(z, conv.bias, drop, field.nodes[k + 1], self.config.dropout, layer=k + 1)
        return h

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        return field.select_output(field.hops[-1] @ (self.hidden(field, drop) @ self.head.weight)) + self.head.bias

    def representation(self, field: ReceptiveField) -> Tensor:
        return field.select_output(field.hops[-1] @ self.hidden(field, None))


@dataclass(frozen=True)
class GCN(GraphBackbone):
    """Kipf & Welling 2017: ``layers`` graph convolutions with ReLU and dropout between them."""

    layers: int = 2
    network = GCNReplicas


class SAGEReplicas(Replicas):
    normalisation = "mean"

    def __init__(self, backbone: GraphSAGE, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__(config, backbone.layers)
        widths = _widths(config, backbone.layers, "GraphSAGE")
        pairs = list(pairwise(widths))
        self.neighbours = Linears(Linear(i, o, generators, config.init) for i, o in pairs)
        self.roots = Linears(Linear(i, o, generators, config.init, bias=False) for i, o in pairs)
        self.head: Linear = Linear(2 * widths[-1], config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        h = torch.empty(0)
        for k, (near, root) in enumerate(zip(self.neighbours, self.roots)):
            if k == 0:
                z = field.propagate(near.weight, drop) + field.project(root.weight, drop, level=1)
            else:
                z = field.hops[k] @ (h @ near.weight) + field.select_self(h, k) @ root.weight
            h = relu_dropout(z, near.bias, drop, field.nodes[k + 1], self.config.dropout, layer=k + 1)
        return h

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        h, (near, root) = self.hidden(field, drop), self.head.weight.chunk(2, dim=1)
        z = field.hops[-1] @ (h @ near) + field.select_self(h, self.depth - 1) @ root
        return field.select_output(z) + self.head.bias

    def representation(self, field: ReceptiveField) -> Tensor:
        h = self.hidden(field, None)
        return field.select_output(torch.cat([field.hops[-1] @ h, field.select_self(h, self.depth - 1)], -1))


@dataclass(frozen=True)
class GraphSAGE(GraphBackbone):
    """Hamilton et al. 2017, mean aggregator: a node and the mean of its neighbours have a matrix each."""

    layers: int = 2
    network = SAGEReplicas
    operator = staticmethod(mean)


class JKNetReplicas(Replicas):
    normalisation = "symmetric"

    def __init__(self, backbone: JKNet, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__(config, backbone.layers)
        self.mode = backbone.mode
        widths = [config.in_channels] + [config.hidden_channels] * backbone.layers
        self.convs = Linears(Linear(i, o, generators, config.init) for i, o in pairwise(widths))
        jump = config.hidden_channels * (backbone.layers if backbone.mode == "cat" else 1)
        self.head = Linear(jump, config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        layers: list[Tensor] = []
        for k, conv in enumerate(self.convs):
            z = field.propagate(conv.weight, drop) if k == 0 else field.hops[k] @ (layers[-1] @ conv.weight)
            layers = [field.select_self(h, k) for h in layers]
            layers.append(relu_dropout(z, conv.bias, drop, field.nodes[k + 1], self.config.dropout, layer=k + 1))
        layers = [field.select_output(h) for h in layers]
        return torch.cat(layers, -1) if self.mode == "cat" else torch.stack(layers).amax(0)


@dataclass(frozen=True)
class JKNet(GraphBackbone):
    """Xu et al. 2018: the layers of a GCN joined (``cat`` or ``max``) in front of the last linear map."""

    layers: int = 3
    mode: str = "cat"
    network = JKNetReplicas

    def __post_init__(self) -> None:
        if self.mode not in ("cat", "max"):
            raise ValueError(f"mode={self.mode!r} is not a way to jump; choose among cat, max")


class SGCReplicas(Replicas):
    def __init__(self, backbone: SGC, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__(config, depth=0)
        self.head: Linear = Linear(config.in_channels, config.num_classes, generators, config.init)

    def forward(self, field: ReceptiveField, drop: Dropout | None = None) -> Tensor:
        return field.select_output(field.project(self.head.weight, drop)) + self.head.bias

    def representation(self, field: ReceptiveField) -> Tensor:
        h = field.select_output(field.x.rows[None])  # (1, n, F), the same for every replica
        return h.expand(len(self.head.weight), -1, -1)


@dataclass(frozen=True)
class SGC(GraphBackbone):
    """Wu et al. 2019: a linear model of the features after ``hops`` propagations."""

    hops: int = 2
    network = SGCReplicas

    def prepare(self, adjacency: sp.csr_matrix, x: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        operator = symmetric(adjacency)
        for _ in range(self.hops):
            x = (operator @ x).tocsr()
        return operator, x


class MLPReplicas(Replicas):
    def __init__(self, backbone: MLP, config: ModelConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__(config, depth=0)
        widths = _widths(config, backbone.layers, "an MLP", " (one layer is sgc with hops=0)")
        self.layers = Linears(Linear(i, o, generators, config.init) for i, o in pairwise(widths))
        self.head = Linear(widths[-1], config.num_classes, generators, config.init)

    def hidden(self, field: ReceptiveField, drop: Dropout | None) -> Tensor:
        first, *rest = self.layers
        z = field.select_output(field.project(first.weight, drop))
        h = relu_dropout(z, first.bias, drop, field.output_nodes, self.config.dropout, layer=1)
        for k, layer in enumerate(rest, start=2):
            h = relu_dropout(h @ layer.weight, layer.bias, drop, field.output_nodes, self.config.dropout, layer=k)
        return h


@dataclass(frozen=True)
class MLP(GraphBackbone):
    """``layers`` linear maps of a node's own features; the edges are not read."""

    layers: int = 2
    network = MLPReplicas
    operator = staticmethod(no_edges)
