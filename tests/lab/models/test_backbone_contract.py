"""What every backbone in `BACKBONES` must do. A new one is picked up by its name."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import graphcal.lab.models
import graphcal.lab.training
from graphcal.lab.engine.layers import Dropout
from graphcal.lab.engine.receptive import full_graph, receptive_fields
from graphcal.lab.models import BACKBONES, Backbone, ModelConfig, backbone_of, name_of
from graphcal.lab.models.replicas import graph_input
from graphcal.lab.training import published, train
from graphcal.lab.training.losses import Targets, nll
from graphcal.observation import logits_and_hidden, observe
from graphcal.observation.calls import Call

NAMES = list(BACKBONES)
SMALL = {"gcnii": {"layers": 6}}  # 64 layers add nothing to what is tested here but time


def backbone(name):
    return BACKBONES[name](**SMALL.get(name, {}))


def settings(name, **changes):
    return replace(published("cagcn", name).training, **{"hidden_channels": 8, "epochs": 8, "patience": None} | changes)


def runs_of(name, graph, seeds, **changes):
    return train(graph, backbone(name), settings(name, **changes), seeds=seeds)


def untrained(name, graph, replicas=2, dropout=0.5, input_dropout=0.0):
    """A module with fresh weights, and the graph as it reads it."""
    read = graph_input(backbone(name), graph.x, graph.edge_index, input_dropout)
    config = ModelConfig(read.x.shape[1], 8, 4, dropout, input_dropout, "glorot")
    return backbone(name).build(config, [torch.Generator().manual_seed(r) for r in range(replicas)]), read


@pytest.mark.parametrize("name", NAMES)
def test_outputs_have_the_right_shapes(name, graph):
    run = runs_of(name, graph, [0])[0]
    out = run.outputs
    assert out.logits.shape == (150, 4)
    assert out.graph is graph
    assert not run.model.training
    assert len(run.history.val_loss) == 8
    if out.final is not None:
        assert out.final.gram.shape == (4, 4)
        rebuilt = out.final_representation @ out.final.weight.T + out.final.bias
        assert torch.allclose(rebuilt, out.logits, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_observe_accepts_the_model_on_its_own_and_on_another_graph(name, graph):
    run = runs_of(name, graph, [0])[0]
    seen = observe(run.model, graph)
    assert torch.allclose(seen.logits, run.outputs.logits, atol=1e-6)
    assert (seen.final is None) == (run.outputs.final is None)
    served = logits_and_hidden(run.model, Call((graph.x, graph.edge_index), {}))
    if run.outputs.hidden is None:
        assert served.hidden is None
    else:
        assert torch.equal(seen.hidden, run.outputs.hidden)
        assert torch.equal(served.hidden, run.outputs.hidden)
    half = graph.subgraph(torch.arange(75))
    assert observe(run.model, half).logits.shape == (75, 4)


@pytest.mark.parametrize("name", NAMES)
def test_the_logit_form_of_scar_equals_its_representation_form(name, graph):
    """Eq. 10: h' = w W_y + (1 - w) h, then the last layer; in logits z' = z + w (G[:, y] + b - z)."""
    out = runs_of(name, graph, [1])[0].outputs
    if out.final is None:
        pytest.skip(f"{name} has no final linear layer")
    out = out.to(torch.float64)
    weight, bias, y = out.final.weight, out.final.bias, out.pred
    for w in (1e-3, 0.2, 1.0):
        mixed = w * weight[y] + (1 - w) * out.final_representation
        in_logits = out.logits + w * (out.final.gram[:, y].T + bias - out.logits)
        assert torch.allclose(mixed @ weight.T + bias, in_logits, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_replica_equals_the_run_alone(name, graph):
    together = runs_of(name, graph, [5, 6, 7])
    alone = runs_of(name, graph, [6])[0]
    assert torch.equal(together[1].outputs.logits, alone.outputs.logits)
    assert together[1].history.val_loss == alone.history.val_loss
    assert not torch.equal(together[0].outputs.logits, alone.outputs.logits)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_result(name, graph):
    first, second = (runs_of(name, graph, [3])[0].outputs.logits for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("input_dropout", [0.0, 0.4])
def test_a_field_gives_the_logits_of_the_whole_graph(name, input_dropout, graph):
    """With and without dropout: a mask depends on the node, not on which rows a pass computes."""
    model, read = untrained(name, graph, input_dropout=input_dropout)
    rows, others = (mask.nonzero().flatten() for mask in (graph.train_mask, graph.val_mask))
    learn, check = receptive_fields(read, rows.numpy(), others.numpy(), model.depth)
    everything = full_graph(read, model.depth)
    for drop in (None, Dropout([3, 4], 7)):
        expected = model(everything, drop)
        assert torch.allclose(model(learn, drop), expected[:, rows], atol=1e-5)
        assert torch.allclose(model(check, drop), expected[:, others], atol=1e-5)
    assert not torch.allclose(model(learn, Dropout([3, 4], 7)), model(learn, None), atol=1e-3) or name == "sgc"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("input_dropout", [0.0, 0.4])
def test_gradients_agree_with_differences(name, input_dropout, graph):
    """The derivative of the loss along the gradient is its squared length."""
    model, read = untrained(name, graph, replicas=1, input_dropout=input_dropout)
    rows = graph.train_mask.nonzero().flatten()
    learn, _ = receptive_fields(read, rows.numpy(), rows.numpy(), model.depth)
    targets = Targets(graph.y[rows], torch.full((1, len(rows)), 1 / len(rows)))

    def loss():
        return nll(model(learn, Dropout([0], 9)), targets).sum()

    loss().backward()
    learned = [p for p in model.parameters() if p.requires_grad]
    gradients = [p.grad.clone() for p in learned]
    length = sum(float((g**2).sum()) for g in gradients)
    assert length > 1e-6

    def at(step):
        with torch.no_grad():
            for p, g in zip(learned, gradients):
                p.add_(g, alpha=step)
            value = float(loss())
            for p, g in zip(learned, gradients):
                p.sub_(g, alpha=step)
        return value

    step = 3e-3 / length**0.5
    assert (at(step) - at(-step)) / (2 * step) == pytest.approx(length, rel=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_learns(name, graph):
    model, read = untrained(name, graph)
    rows = graph.train_mask.nonzero().flatten()
    learn, _ = receptive_fields(read, rows.numpy(), rows.numpy(), model.depth)
    model(learn, None).square().sum().backward()
    for key, p in model.named_parameters():
        assert p.shape[0] == 2, key
        if not p.requires_grad:
            continue
        assert p.grad is not None, key
        assert (p.grad.flatten(1).abs().sum(1) > 0).all(), key
    assert {id(p) for p in model.final_parameters()} <= {id(p) for p in model.parameters()}


@pytest.mark.parametrize("name", NAMES)
def test_a_sparse_input_is_read_as_the_dense_one(name, graph):
    sparse = graph.clone()
    sparse.x = torch.where(graph.x.abs() > 1.5, graph.x, 0.0)
    dense = sparse.clone()
    sparse.x = sparse.x.to_sparse_csr()
    first, second = (runs_of(name, g, [0])[0].outputs.logits for g in (sparse, dense))
    assert torch.allclose(first, second, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_training_mode_drops_out(name, graph):
    model = runs_of(name, graph, [0], dropout=0.5)[0].model
    torch.manual_seed(0)
    model.train()
    with torch.no_grad():
        a, b = model(graph.x, graph.edge_index), model(graph.x, graph.edge_index)
    assert torch.equal(a, b) == (name == "sgc")


def test_no_device_is_named():
    for package in (graphcal.lab.models, graphcal.lab.training):
        for path in Path(package.__file__).parent.glob("*.py"):
            assert not re.search(r"[\"'](cpu|cuda|mps)[\"']", path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("name", NAMES)
def test_a_name_and_its_backbone_lead_to_each_other(name):
    assert isinstance(backbone(name), Backbone)
    assert name_of(backbone_of(name)) == name
    assert backbone_of(backbone(name)) == backbone(name)


def test_an_unknown_name_lists_the_choices():
    with pytest.raises(ValueError, match="unknown backbone 'gnc'; choose among gcn, gat"):
        backbone_of("gnc")
