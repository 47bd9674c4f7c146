import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import graphcal
from graphcal.observation.batches import by_target_chunks

DATA = graphcal.example(400).graph
F, C = DATA.num_features, DATA.num_classes


class Convolutions(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x, edge_index):
        for layer in self.layers[:-1]:
            x = self.norm(layer(x, edge_index)).relu()
        return self.layers[-1](x, edge_index)


DEGREES = torch.bincount(torch.bincount(DATA.edge_index[1]))
PAIRS = {
    "GCN": lambda i, o: pyg.GCNConv(i, o),
    "SAGE": lambda i, o: pyg.SAGEConv(i, o),
    "SAGE max": lambda i, o: pyg.SAGEConv(i, o, aggr="max"),
    "GAT": lambda i, o: pyg.GATConv(i, o, heads=2, concat=False),
    "GATv2": lambda i, o: pyg.GATv2Conv(i, o, heads=2, concat=False),
    "Transformer": lambda i, o: pyg.TransformerConv(i, o),
    "GIN": lambda i, o: pyg.GINConv(nn.Linear(i, o)),
    "GraphConv": lambda i, o: pyg.GraphConv(i, o),
    "TAG": lambda i, o: pyg.TAGConv(i, o),
    "Cheb": lambda i, o: pyg.ChebConv(i, o, 2),
    "SG": lambda i, o: pyg.SGConv(i, o, K=2),
    "PNA": lambda i, o: pyg.PNAConv(i, o, ["mean", "std"], ["identity", "amplification"], DEGREES),
    "Edge": lambda i, o: pyg.EdgeConv(nn.Linear(2 * i, o)),
    "ResGated": lambda i, o: pyg.ResGatedGraphConv(i, o),
    "LE": lambda i, o: pyg.LEConv(i, o),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_by_parts_is_the_whole(kind):
    torch.manual_seed(0)
    model = Convolutions(PAIRS[kind](F, 16), PAIRS[kind](16, C)).eval()
    with torch.no_grad():
        whole = model(DATA.x, DATA.edge_index)
        for edges in (1, 97, 2000):
            with by_target_chunks(model, edges):
                parts = model(DATA.x, DATA.edge_index)
            torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-5)
        assert torch.equal(model(DATA.x, DATA.edge_index), whole)  # and the model is as it was


class Counting(pyg.GCNConv):
    largest = 0

    def message(self, x_j, edge_weight):
        Counting.largest = max(Counting.largest, len(x_j))
        return super().message(x_j, edge_weight)


def test_no_more_messages_are_formed_at_once_than_asked_for():
    model = Convolutions(Counting(F, 16), Counting(16, C)).eval()
    largest_degree = int(torch.bincount(DATA.edge_index[1]).max()) + 1  # a node's edges and its loop cannot be cut
    with torch.no_grad(), by_target_chunks(model, 200):
        Counting.largest = 0
        model(DATA.x, DATA.edge_index)
    assert 1 < Counting.largest <= max(200, largest_degree)


class SoftmaxOverAllEdges(pyg.MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return x_j.mean(1, keepdim=True).softmax(0) * x_j * 100


def test_a_layer_that_mixes_its_targets_is_refused():
    model = Convolutions(pyg.GCNConv(F, 16), SoftmaxOverAllEdges()).eval()
    with (
        torch.no_grad(),
        by_target_chunks(model, 500),
        pytest.raises(ValueError, match="SoftmaxOverAllEdges does not compute its target nodes one by one"),
    ):
        model(DATA.x, DATA.edge_index)
    assert "propagate" not in vars(model.layers[0])  # undone after an error too


class RootInUpdate(pyg.MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return x_j

    def update(self, inputs, x):
        return inputs - x


def test_a_layer_that_reads_its_nodes_in_update_runs_as_it_is():
    model = Convolutions(pyg.GCNConv(F, 16), RootInUpdate()).eval()
    with torch.no_grad():
        whole = model(DATA.x, DATA.edge_index)
        with by_target_chunks(model, 50):
            torch.testing.assert_close(model(DATA.x, DATA.edge_index), whole, rtol=1e-4, atol=1e-5)
