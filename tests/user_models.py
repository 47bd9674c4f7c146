"""Models as people write them: every head, ending, signature and precision that the tests of observing go through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import (
    APPNP,
    ChebConv,
    ClusterGCNConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    LEConv,
    Linear,
    RGCNConv,
    SAGEConv,
    SGConv,
    SSGConv,
    SuperGATConv,
    TAGConv,
    TransformerConv,
)
from torch_geometric.nn import Sequential as PygSequential
from torch_geometric.nn.models import GAT, GCN, GIN, PNA, GraphSAGE

INPUTS, WIDTH, CLASSES = 10, 8, 4
Head = Callable[[], nn.Module]


class Encoded(nn.Module):
    """A GCN layer, then a head that takes (x, edge_index) or x."""

    def __init__(self, head: nn.Module, takes_edges: bool = True) -> None:
        super().__init__()
        self.first, self.head, self.takes_edges = GCNConv(INPUTS, WIDTH), head, takes_edges

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.first(x, edge_index).relu()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.dropout(self.encode(x, edge_index), 0.5, self.training)
        return self.head(h, edge_index) if self.takes_edges else self.head(h)


class LinearThenAPPNP(nn.Module):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(INPUTS, WIDTH), nn.Linear(WIDTH, CLASSES, bias=bias)
        self.spread = APPNP(3, 0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.spread(self.last(self.first(x).relu()), edge_index)


class SumOfHeads(Encoded):
    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, CLASSES))
        self.skip, self.graph = Linear(INPUTS, CLASSES), SAGEConv(WIDTH, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.encode(x, edge_index)
        return self.head(h) + self.skip(x) + self.graph(h, edge_index)


class NormedAtTheEnd(Encoded):
    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, CLASSES))
        self.norm = nn.BatchNorm1d(CLASSES)
        self.norm.running_mean = torch.randn(CLASSES)
        self.norm.running_var = torch.rand(CLASSES) + 0.5
        nn.init.uniform_(self.norm.weight, 0.5, 2.0)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.norm(self.head(self.encode(x, edge_index)))


class Prototypes(Encoded):
    """A plain parameter, stored the other way round, and a temperature."""

    def __init__(self) -> None:
        super().__init__(nn.Identity())
        self.prototypes = nn.Parameter(torch.randn(WIDTH, CLASSES))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.encode(x, edge_index) @ self.prototypes / 0.5


class OwnAttention(nn.Module):
    """Attention over neighbours written by hand, with torch's softmax on a dense matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.key = nn.Linear(INPUTS, CLASSES), nn.Linear(INPUTS, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        score = torch.full((len(x), len(x)), -1e9).index_put((edge_index[1], edge_index[0]), x.new_zeros(()))
        score = score + torch.eye(len(x)) * 1e9 + self.key(x) @ self.key(x).T
        return torch.softmax(score, -1) @ self.value(x)


class Relational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = RGCNConv(INPUTS, CLASSES, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index, (edge_index[0] > edge_index[1]).long())


class NoFeatures(nn.Module):
    def __init__(self, nodes: int = 150) -> None:
        super().__init__()
        self.embedding, self.conv = nn.Embedding(nodes, WIDTH), GCNConv(WIDTH, CLASSES)

    def forward(self, edge_index: Tensor) -> Tensor:
        return self.conv(self.embedding.weight, edge_index)


def graph_head(make: Callable[..., nn.Module], *args: Any, **kwargs: Any) -> Head:
    return lambda: Encoded(make(WIDTH, CLASSES, *args, **kwargs))


def plain_head(make: Callable[[], nn.Module]) -> Head:
    return lambda: Encoded(make(), takes_edges=False)


HEADS: dict[str, Head] = {
    "nn.Linear": plain_head(lambda: nn.Linear(WIDTH, CLASSES)),
    "pyg Linear": plain_head(lambda: Linear(WIDTH, CLASSES)),
    "lazy pyg Linear": plain_head(lambda: Linear(-1, CLASSES)),
    "MLP": plain_head(lambda: nn.Sequential(nn.Linear(WIDTH, 6), nn.ReLU(), nn.Linear(6, CLASSES, bias=False))),
    "GCNConv": graph_head(GCNConv),
    "GCNConv cached": graph_head(GCNConv, cached=True),
    "GATConv": graph_head(GATConv),
    "GATConv averaged heads": graph_head(GATConv, heads=3, concat=False),
    "GATConv residual": graph_head(GATConv, residual=True),
    "GATConv averaged heads, residual": graph_head(GATConv, heads=2, concat=False, residual=True),
    "GATv2Conv": graph_head(GATv2Conv),
    "GATv2Conv averaged heads": graph_head(GATv2Conv, heads=2, concat=False),
    "SAGEConv": graph_head(SAGEConv),
    "SAGEConv max, no root": graph_head(SAGEConv, aggr="max", root_weight=False),
    "GraphConv": graph_head(GraphConv),
    "TransformerConv": graph_head(TransformerConv),
    "TransformerConv gated skip": graph_head(TransformerConv, beta=True),
    "TransformerConv averaged heads": graph_head(TransformerConv, heads=2, concat=False),
    "TAGConv": graph_head(TAGConv, K=2),
    "ChebConv": graph_head(ChebConv, K=3),
    "SGConv": graph_head(SGConv, K=2),
    "SSGConv": graph_head(SSGConv, alpha=0.2, K=2),
    "ClusterGCNConv": graph_head(ClusterGCNConv),
    "LEConv": graph_head(LEConv),
    "SuperGATConv": graph_head(SuperGATConv, heads=2, concat=False),
    "GINConv of a Linear": lambda: Encoded(GINConv(nn.Linear(WIDTH, CLASSES), train_eps=True)),
    "RGCNConv": Relational,
    "Linear, then APPNP": LinearThenAPPNP,
    "Linear without bias, then APPNP": lambda: LinearThenAPPNP(bias=False),
    "sum of three heads": SumOfHeads,
    "BatchNorm at the end": NormedAtTheEnd,
    "prototypes": Prototypes,
    "own attention": OwnAttention,
    "embedding": NoFeatures,
    "models.GCN": lambda: GCN(INPUTS, WIDTH, 2, CLASSES),
    "models.GCN with JumpingKnowledge": lambda: GCN(INPUTS, WIDTH, 2, CLASSES, jk="cat"),
    "models.GCN with BatchNorm": lambda: GCN(INPUTS, WIDTH, 3, CLASSES, norm="batch"),
    "models.GAT v2": lambda: GAT(INPUTS, WIDTH, 2, CLASSES, v2=True, heads=2),
    "models.GraphSAGE": lambda: GraphSAGE(INPUTS, WIDTH, 2, CLASSES),
    "models.GIN": lambda: GIN(INPUTS, WIDTH, 2, CLASSES),
    "models.PNA": lambda: PNA(
        INPUTS, WIDTH, 2, CLASSES, aggregators=["mean"], scalers=["identity"], deg=torch.tensor([1, 5, 20])
    ),
    "pyg Sequential": lambda: PygSequential(
        "x, edge_index",
        [
            (GCNConv(INPUTS, WIDTH), "x, edge_index -> x"),
            nn.ReLU(),
            (GraphConv(WIDTH, CLASSES), "x, edge_index -> x"),
        ],
    ),
}

# what is not linear in a last layer: logits only
NOT_LINEAR: dict[str, Head] = {
    "ReLU at the end": plain_head(lambda: nn.Sequential(nn.Linear(WIDTH, CLASSES), nn.ReLU())),
    "tanh at the end": plain_head(lambda: nn.Sequential(nn.Linear(WIDTH, CLASSES), nn.Tanh())),
    "LayerNorm at the end": plain_head(lambda: nn.Sequential(nn.Linear(WIDTH, CLASSES), nn.LayerNorm(CLASSES))),
    "SAGEConv normalised": graph_head(SAGEConv, normalize=True),
    "GATConv concatenated heads": lambda: Encoded(GATConv(WIDTH, CLASSES // 2, heads=2)),
    "sum with something non-linear": lambda: SumWithNonLinear(),
}


class SumWithNonLinear(Encoded):
    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, CLASSES))
        self.other = nn.Linear(INPUTS, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.encode(x, edge_index)) + self.other(x).tanh()


def build(make: Head, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return make().eval()
