"""Models that name their arguments in another way, or compute in another precision, are served as they were observed."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import graphcal


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
    return graphcal.example().graph


def fitted(model, data, **options):
    """Served and calibrated; both weights are set, so that training nodes matter."""
    out = graphcal.observe(model, data, **options)
    calibrate = graphcal.SCAR(0.03, 0.2).fit(out, on=data.val_mask)
    assert (
        float((calibrate(out) - calibrate.log_probs(out.logits, calibrate.unknown_context(out.logits))).abs().max())
        > 0.1
    )
    return graphcal.CalibratedModel(model, calibrate, data.train_mask), calibrate(out)


def test_edges_first_and_other_names(data):
    torch.manual_seed(0)
    served, expected = fitted(Named(data.num_features, data.num_classes), data)
    torch.testing.assert_close(served(data.edge_index, data.x), expected, atol=1e-5, rtol=1e-5)


def test_a_model_in_double_precision(data):
    torch.manual_seed(0)
    served, expected = fitted(Plain(data.num_features, data.num_classes).double(), data)
    torch.testing.assert_close(served(data.x.double(), data.edge_index), expected, atol=1e-9, rtol=1e-9)


def test_features_under_a_name_that_nobody_knows(data):
    torch.manual_seed(0)
    model = Unnamed(data.num_features, data.num_classes)
    served, expected = fitted(model, data, call=lambda m, d: m(d.x, d.edge_index))
    torch.testing.assert_close(served(data.x, data.edge_index), expected, atol=1e-5, rtol=1e-5)
