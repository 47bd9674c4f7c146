"""Models that name their arguments in another way, or compute in another precision, are served as they were observed."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import graphcal as gc


class Named(nn.Module):
    """Edges first, and other names for both."""

    def __init__(self, channels, classes):
        super().__init__()
        self.first, self.last = GCNConv(channels, 8), GCNConv(8, classes)

    def forward(self, edges, feats):
        return self.last(self.first(feats, edges).relu(), edges)


class Plain(Named):
    def forward(self, x, edge_index):
        return super().forward(edge_index, x)


class Unnamed(Named):
    def forward(self, table, edge_index):
        return super().forward(edge_index, table)


@pytest.fixture(scope="module")
def data():
    return gc.lab.synthetic(500, homophily=0.8, feature_signal=0.5, seed=0)


def fitted(model, data, **options):
    out = gc.observe(model, data, **options)
    calibrate = gc.SCAR().fit(out, on=data.val_mask)
    return gc.CalibratedModel(model, calibrate), calibrate(out)


def test_training_nodes_are_recognised_under_other_names(data):
    torch.manual_seed(0)
    served, told = fitted(Named(data.num_features, data.num_classes), data)
    with torch.no_grad():
        said = served(data.edge_index, data.x)
    assert torch.allclose(said.exp(), told.exp(), atol=1e-5)


def test_a_model_in_double_precision(data):
    torch.manual_seed(0)
    served, told = fitted(Plain(data.num_features, data.num_classes).double(), data)
    with torch.no_grad():
        said = served(data.x.double(), data.edge_index)
    assert torch.allclose(said.exp().float(), told.exp().float(), atol=1e-5)


def test_features_that_nobody_can_recognise_are_told(data):
    torch.manual_seed(0)
    model = Unnamed(data.num_features, data.num_classes)
    served, told = fitted(model, data, call=lambda m, d: m(d.x, d.edge_index))
    with torch.no_grad(), pytest.warns(UserWarning, match="no node features.*train_mask="):
        served(data.x, data.edge_index)
    served = gc.CalibratedModel(model, served.calibration, train_mask=data.train_mask)
    with torch.no_grad():
        said = served(data.x, data.edge_index)
    assert torch.allclose(said.exp(), told.exp(), atol=1e-5)


def test_features_of_another_precision_are_told(data):
    torch.manual_seed(0)
    model = Plain(data.num_features, data.num_classes).bfloat16()
    served, _ = fitted(model, data)
    with torch.no_grad(), pytest.warns(UserWarning, match="torch.bfloat16.*train_mask="):
        served(data.x.bfloat16(), data.edge_index)
