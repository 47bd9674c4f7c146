"""An observed model runs again: with weights on its edges, with its dropout."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GCNConv, SAGEConv

from conftest import needs_lab, random_graph
from graphcal import CALIBRATORS, CalibratedModel, observe

GRAPH = random_graph()


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = GCNConv(10, 8), nn.BatchNorm1d(8), GCNConv(8, 4)

    def forward(self, x, edge_index, edge_weight=None):
        h = self.norm(self.first(x, edge_index, edge_weight)).relu()
        return self.last(F.dropout(h, 0.5, self.training), edge_index, edge_weight).log_softmax(-1)


class FromData(Weighted):
    def forward(self, data):
        return super().forward(data.x, data.edge_index, data.edge_weight if "edge_weight" in data else None)


@pytest.mark.parametrize("cls", [Weighted, FromData])
def test_weights_on_the_edges_carry_a_gradient_and_parameters_do_not(cls):
    model = cls()
    out = observe(model, GRAPH)
    weights = torch.full((GRAPH.edge_index.shape[1],), 0.5, requires_grad=True)
    logits = out.rerun("test", edge_weight=weights)
    expected = Weighted.forward(model.eval(), GRAPH.x, GRAPH.edge_index, weights)
    torch.testing.assert_close(logits.log_softmax(-1), expected)
    logits.square().sum().backward()
    assert float(weights.grad.abs().max()) > 0
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_dropout_is_drawn_from_the_generator_and_running_means_stay():
    model = Weighted().train()
    before = model.norm.running_mean.clone()
    out = observe(model, GRAPH)
    first, again = (out.rerun("test", dropout=torch.Generator().manual_seed(3)) for _ in range(2))
    other = out.rerun("test", dropout=torch.Generator().manual_seed(4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, out.logits)
    torch.testing.assert_close(out.rerun("test"), out.logits)
    assert torch.equal(model.norm.running_mean, before)
    assert model.training


@needs_lab
def test_calibrators_that_run_the_model_again():
    model = Weighted()
    out = observe(model, GRAPH)
    dcgc = CALIBRATORS["dcgc"](epochs=3, calibrator=CALIBRATORS["ts"]()).fit(out, on=GRAPH.val_mask)
    served = CalibratedModel(model, dcgc)(GRAPH.x, GRAPH.edge_index)
    torch.testing.assert_close(served, dcgc(out), atol=1e-5, rtol=1e-4)
    assert not served.requires_grad


@needs_lab
@pytest.mark.parametrize("name", ["simcalib", "gets", "gats"])
def test_calibrators_that_read_more_than_logits_are_served(name):
    model = Weighted()
    out = observe(model, GRAPH)
    calibrate = CALIBRATORS[name](epochs=3).fit(out, on=GRAPH.val_mask)
    served = CalibratedModel(model, calibrate, GRAPH.train_mask)(GRAPH.x, GRAPH.edge_index)
    torch.testing.assert_close(served, calibrate(out), atol=1e-4, rtol=1e-4)


@needs_lab
def test_a_model_without_dropout_or_weights_says_so():
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = SAGEConv(10, 4)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    out = observe(Plain(), GRAPH)
    with pytest.raises(
        ValueError, match="Plain cannot be run with weights on its edges: its forward does not read edge_weight"
    ):
        CALIBRATORS["dcgc"]().fit(out, on=GRAPH.val_mask)
    with pytest.raises(ValueError, match="Plain has no dropout"):
        out.rerun("test", dropout=torch.Generator())
