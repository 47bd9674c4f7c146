"""A model with its repair."""

import pytest
import torch
from torch import nn
from torch_geometric.nn.models import GCN

from conftest import random_graph
from graphcal import SCAR, CalibratedModel, observe
from graphcal.methods.scar import fit_pull

ALPHA, BETA = 0.03, 0.2


def gcn() -> nn.Module:
    torch.manual_seed(0)
    return GCN(10, 8, 2, out_channels=4).eval()


def test_has_the_models_signature_and_equals_the_calibration(graph):
    model = gcn()
    out = observe(model, graph)
    calibration = SCAR(ALPHA, BETA).fit(out, graph.val_mask)
    wrapped = CalibratedModel(model, calibration)
    assert torch.allclose(wrapped(graph.x, graph.edge_index), calibration(out), atol=1e-6)
    assert torch.allclose(wrapped(graph.x, edge_index=graph.edge_index), calibration(out), atol=1e-6)


def test_a_signature_without_edges_needs_as_graph(graph):
    class Blind(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(10, 4)

        def forward(self, features):
            return self.layer(features)

    model = Blind()
    out = observe(model, graph, call=lambda m, d: m(d.x))
    calibration = SCAR(ALPHA, BETA).fit(out, graph.val_mask)
    with pytest.raises(ValueError, match="as_graph"):
        CalibratedModel(model, calibration)(graph.x)
    wrapped = CalibratedModel(model, calibration, as_graph=lambda features: graph.clone())
    assert torch.allclose(wrapped(graph.x), calibration(out), atol=1e-6)


def test_on_another_graph_no_node_is_a_training_node(graph):
    model = gcn()
    calibration = fit_pull(observe(model, graph), graph.val_mask, ALPHA, BETA, guarded=False)
    small = random_graph(nodes=50, train=10, val=20, seed=3)
    log_probs = CalibratedModel(model, calibration)(small.x, small.edge_index)
    z = model(small.x, small.edge_index)
    layer = observe(model, small).final
    d = layer.gram.T[z.argmax(-1)] + layer.bias - z
    assert torch.allclose(log_probs, (z + BETA * d).log_softmax(-1), atol=1e-5)
