"""A trained model as a module, and on its graph to be run again."""

import pytest
import torch

from conftest import random_graph
from graphcal import CALIBRATORS
from graphcal.lab.models import GCN, ModelOnGraph, TrainedGNN
from graphcal.lab.training import Training, train

SHORT = Training(epochs=20, hidden_channels=8)


@pytest.fixture(scope="module")
def data():
    return random_graph()


@pytest.fixture(scope="module")
def run(data):
    return train(data, "gcn", SHORT, seeds=[0])[0]


def test_a_model_comes_back_from_its_state(run, data):
    again = TrainedGNN.from_state(GCN(), run.model.replicas.config, run.model.replicas.state_dict())
    assert torch.equal(again(data.x, data.edge_index), run.model(data.x, data.edge_index))
    assert not again.training


def test_the_handle_gives_the_outputs_of_the_training(run, data):
    handle = run.model.on(data)
    assert isinstance(handle, ModelOnGraph)
    out = handle.outputs(data)
    assert torch.equal(out.logits, run.outputs.logits)
    assert torch.equal(out.hidden, run.outputs.hidden)
    assert torch.equal(out.final.weight, run.outputs.final.weight)
    assert torch.equal(handle.logits(), out.logits)


def test_the_graph_is_prepared_once_and_late(run, data, monkeypatch):
    prepared = []
    prepare = TrainedGNN._full_graph
    monkeypatch.setattr(TrainedGNN, "_full_graph", lambda *a: prepared.append(1) or prepare(*a))
    handle = run.model.on(data)
    assert prepared == []
    handle.logits()
    handle.logits()
    assert prepared == [1]


def test_dropout_is_drawn_from_the_generator(run):
    def draw(seed):
        return run.outputs.rerun("this test", dropout=torch.Generator().manual_seed(seed))

    assert not torch.equal(draw(1), draw(2))
    assert torch.equal(draw(1), draw(1))
    mean = torch.stack([draw(seed) for seed in range(200)]).mean(0)
    assert (mean - run.outputs.logits).abs().mean() < 0.3 * (draw(1) - run.outputs.logits).abs().mean()


def test_a_model_that_does_not_weigh_its_edges_says_so(data):
    out = train(data, "sgc", SHORT, seeds=[0])[0].outputs
    with pytest.raises(ValueError, match="SGCReplicas does not read weights on its edges"):
        out.rerun("this test", edge_weight=torch.ones(data.num_edges))


@pytest.mark.slow_cases("gcnii", "jknet", "appnp", "gcn")
@pytest.mark.parametrize("backbone", ["gcn", "gat", "appnp", "gcnii", "jknet", "sage"])
def test_a_calibrator_that_weighs_edges_works_on_it(backbone, data):
    out = train(data, backbone, SHORT, seeds=[0])[0].outputs
    log_probs = CALIBRATORS["dcgc"](epochs=3).fit(out, on=data.val_mask)(out)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(out.num_nodes), atol=1e-5, rtol=0)
