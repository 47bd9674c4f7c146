"""Small models in double precision for the theory's tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from conftest import random_graph
from graphcal.core import FinalLayer, Outputs


def double_graph() -> Data:
    data = random_graph()
    data.x = data.x.double()
    return data


class TwoLayers(nn.Module):
    def __init__(self, conv: type[nn.Module], features: int, classes: int, hidden: int = 12) -> None:
        super().__init__()
        self.first, self.head = conv(features, hidden), conv(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.first(x, edge_index).relu(), edge_index)


def trained(data: Data, conv: type[nn.Module] = GCNConv, decay: float = 5e-4, epochs: int = 60) -> nn.Module:
    torch.manual_seed(0)
    model = TwoLayers(conv, data.x.shape[1], 4).to(data.x.dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=decay)
    for _ in range(epochs):
        optimizer.zero_grad()
        cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    return model


def with_head(out: Outputs, head: FinalLayer) -> Outputs:
    assert out.final_representation is not None
    hidden = out.final_representation.double()
    return Outputs(hidden @ head.weight.T + head.bias, out.graph, head, hidden)
