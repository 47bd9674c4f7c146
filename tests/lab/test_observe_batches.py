import pytest
import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn.models import GAT, GCN, GraphSAGE

import graphcal
from graphcal.lab.training import NeighborSampler
from graphcal.observation import batches

DATA = graphcal.lab.synthetic(600, degree=12, seed=0)


def made(kind, **settings):
    torch.manual_seed(1)
    return kind(DATA.num_features, 16, 2, DATA.num_classes, **settings)


@pytest.mark.parametrize("kind", [GCN, GraphSAGE, GAT])
def test_layer_by_layer_is_the_full_pass(kind, monkeypatch):
    monkeypatch.setattr(batches, "EDGES", 300)
    model = made(kind, dropout=0.5).train()
    whole, parts = graphcal.observe(model, DATA), graphcal.observe(model, DATA, layerwise=True)
    torch.testing.assert_close(parts.logits, whole.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(parts.final.weight, whole.final.weight)
    assert model.training  # as it was


def test_layer_by_layer_for_our_own_models():
    (run,) = graphcal.lab.train(DATA, "gcn", graphcal.lab.Training(epochs=3), seeds=1)
    out = graphcal.observe(run.model, DATA, layerwise=True)
    torch.testing.assert_close(out.logits, run.outputs.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out.final.weight, run.outputs.final.weight)


def test_scar_is_the_same_on_what_was_observed_by_parts():
    model = made(GraphSAGE)
    whole, parts = graphcal.observe(model, DATA), graphcal.observe(model, DATA, layerwise=True)
    a, b = (graphcal.SCAR().fit(out, on=DATA.val_mask)(out) for out in (whole, parts))
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_batches_with_whole_neighbourhoods_are_the_full_pass():
    model = made(GraphSAGE)
    loader = NeighborSampler(DATA, (-1, -1), batch_size=128, shuffle=True)
    out = graphcal.observe(model, loader=loader)
    whole = graphcal.observe(model, DATA)
    torch.testing.assert_close(out.logits, whole.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out.final.weight, whole.final.weight)
    assert out.graph is DATA
    assert (
        graphcal.observe(model, DATA, loader=list(loader)).num_nodes == 600
    )  # any iterable of batches, with its graph


class SeedsOnly(nn.Module):
    """The habit of PyG's examples: a model that answers for its seeds alone."""

    def __init__(self):
        super().__init__()
        self.inner = made(GraphSAGE)

    def forward(self, x, edge_index, batch_size=None):
        return self.inner(x, edge_index)[:batch_size]


def test_a_model_that_answers_for_its_seeds_alone():
    loader, model = NeighborSampler(DATA, (-1, -1), batch_size=100), SeedsOnly()
    out = graphcal.observe(model, loader=loader, call=lambda m, batch: m(batch.x, batch.edge_index, batch.batch_size))
    torch.testing.assert_close(out.logits, graphcal.observe(model.inner, DATA).logits, rtol=1e-4, atol=1e-5)
    assert out.final is not None


def test_what_the_batches_do_not_say_is_asked_for():
    model = made(GraphSAGE)
    with pytest.raises(ValueError, match="480 of 600 nodes were a seed in no batch"):
        graphcal.observe(model, loader=NeighborSampler(DATA, (2, 2), input_nodes=torch.arange(120)))
    with pytest.raises(ValueError, match="one kind of nodes, a Data; got HeteroData"):
        graphcal.observe(model, HeteroData(), loader=[DATA])
    with pytest.raises(ValueError, match="one kind of nodes, a Data; got HeteroData"):
        graphcal.observe(model, HeteroData(), layerwise=True)
    with pytest.raises(ValueError, match="does not hold its graph"):
        graphcal.observe(model, loader=[DATA])
    with pytest.raises(ValueError, match="a batch has no n_id and no batch_size"):
        graphcal.observe(model, DATA, loader=[DATA])
    with pytest.raises(ValueError, match="has no message-passing layer of PyG"):
        graphcal.observe(nn.Linear(DATA.num_features, 5), DATA, layerwise=True, call=lambda model, data: model(data.x))
