"""Five types of models as newcomers write them; `enters` gives the representation that enters the final linear map."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import GCNConv, HeteroConv, Linear, SAGEConv, TransformerConv

from conftest import random_graph

GRAPH, BINARY = random_graph(), random_graph(classes=2)
WIDTH = 8


class TakesData(nn.Module):
    """``forward(data)`` with a closing log_softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = GCNConv(10, WIDTH), GCNConv(WIDTH, 4)

    def enters(self, data):
        return F.dropout(self.first(data.x, data.edge_index).relu(), training=self.training)

    def forward(self, data):
        return F.log_softmax(self.last(self.enters(data), data.edge_index), dim=1)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = TransformerConv(10, WIDTH, heads=2, beta=True)
        self.last = TransformerConv(2 * WIDTH, 4, heads=3, concat=False, beta=True)

    def enters(self, x, edge_index):
        return self.first(x, edge_index).relu()

    def forward(self, x, edge_index):
        return self.last(self.enters(x, edge_index), edge_index).log_softmax(-1)


class OneLogit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = GCNConv(10, WIDTH), GCNConv(WIDTH, 1)

    def enters(self, x, edge_index):
        return self.first(x, edge_index).relu()

    def forward(self, x, edge_index):
        return self.last(self.enters(x, edge_index), edge_index).squeeze(-1)


class Sage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = SAGEConv(10, WIDTH), SAGEConv(WIDTH, 4)

    def enters(self, x, edge_index):
        h = self.first(x, edge_index).relu()
        return torch.cat([self.last.propagate(edge_index, x=(h, h), size=None), h], 1)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)


class Hetero(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        kinds = [("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "by", "author")]
        self.conv = HeteroConv({kind: SAGEConv((-1, -1), WIDTH) for kind in kinds})
        self.last = Linear(WIDTH, 4)

    def enters(self, x_dict, edge_index_dict):
        return self.conv(x_dict, edge_index_dict)["paper"].relu()

    def forward(self, x_dict, edge_index_dict):
        return self.last(self.enters(x_dict, edge_index_dict))


def hetero() -> HeteroData:
    data = HeteroData()
    data["paper"].x, data["paper"].y = GRAPH.x, GRAPH.y
    data["author"].x = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    data["paper", "cites", "paper"].edge_index = GRAPH.edge_index
    data["author", "writes", "paper"].edge_index = torch.stack([torch.arange(20), torch.arange(20) * 3])
    data["paper", "by", "author"].edge_index = torch.stack([torch.arange(20) * 3, torch.arange(20)])
    return data


XY = (GRAPH.x, GRAPH.edge_index)
FIVE = {
    "SAGE": (Sage, GRAPH, XY, 1),
    "HeteroConv + Linear": (Hetero, hetero(), (hetero().x_dict, hetero().edge_index_dict), 1),
    "forward(data)": (TakesData, GRAPH, (GRAPH,), 2),
    "TransformerConv(beta)": (Transformer, GRAPH, XY, 2),
    "one logit": (OneLogit, BINARY, (BINARY.x, BINARY.edge_index), 2),
}


def made(name: str):
    """Model, data, arguments of a call, passes that observing takes, and a list that grows with each pass."""
    make, data, args, passes = FIVE[name]
    torch.manual_seed(0)
    model, count = make().eval(), []
    with torch.no_grad():
        model(*args)  # lazy sizes
    model.register_forward_pre_hook(lambda *_: count.append(1))
    return model, data, args, passes, count
