"""A decay of every replica's own."""

from dataclasses import replace

import pytest
import torch

from graphcal.lab.models import GCN, GCNII, ModelConfig
from graphcal.lab.training import Replica, Training, train, train_replicas
from graphcal.lab.training._loop import StackedAdam

QUICK = Training(hidden_channels=8, epochs=30, patience=None)


def test_the_final_decay_moves_the_final_layer(graph):
    """Theorem 3.2 and Proposition 3.3: a smaller decay leaves larger class centroids."""
    replicas = [Replica(0, final_weight_decay=decay) for decay in (0.0, 1e-3, 1e-1)]
    runs = train_replicas(graph, "gcn", replace(QUICK, epochs=200), replicas)
    norms = [float(run.outputs.final.weight.norm()) for run in runs]
    assert norms[0] > norms[1] > norms[2]
    alone = train(graph, training=replace(QUICK, epochs=200, final_weight_decay=1e-3), seeds=[0])[0]
    assert torch.equal(alone.outputs.logits, runs[1].outputs.logits)


def test_a_replica_may_have_its_own_decay_everywhere(graph):
    runs = train_replicas(graph, "gcn", replace(QUICK, epochs=100), [Replica(0, weight_decay=d) for d in (0.0, 0.1)])
    alone = train(graph, training=replace(QUICK, epochs=100, weight_decay=0.1), seeds=[0])[0]
    assert torch.allclose(runs[1].outputs.logits, alone.outputs.logits, atol=1e-4)
    assert float(runs[0].outputs.final.weight.norm()) > float(runs[1].outputs.final.weight.norm())


def module(backbone, replicas=2):
    generators = [torch.Generator().manual_seed(r) for r in range(replicas)]
    return backbone.build(ModelConfig(5, 8, 3, 0.0, 0.0, "glorot"), generators)


def one_step(model, training, replicas):
    optimizer = StackedAdam(model, training, replicas)
    optimizer.step(sum(p.sum() for p in model.parameters() if p.requires_grad))
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_a_step_is_adams_with_each_layers_rate_and_decay():
    training = Training(lr=0.1, final_lr=0.3, weight_decay=2.0, final_weight_decay=0.5)
    model = module(GCN())
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    after = one_step(model, training, [Replica(0), Replica(1, final_weight_decay=0.0)])
    for name, start in before.items():
        final = name.startswith("head")
        decay = torch.tensor([0.5, 0.0] if final else [2.0, 2.0]).view(-1, *[1] * (start.dim() - 1))
        gradient = 1 + decay * start
        expected = start - (0.3 if final else 0.1) * gradient / (gradient.abs() + 1e-8)
        torch.testing.assert_close(after[name], expected, atol=1e-5, rtol=0)


def test_a_backbones_own_decay_goes_before_the_trainings():
    """A gradient of 1 and a weight of -1: a decay above 1 turns the first step round."""
    model = module(GCNII(layers=2, conv_weight_decay=5.0))
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(-1)
    after = one_step(model, Training(lr=0.1, weight_decay=0.0), [Replica(0), Replica(1)])
    assert after["convs.0.weight"].unique().tolist() == pytest.approx([-0.9])
    assert after["first.weight"].unique().tolist() == pytest.approx([-1.1])


def test_the_moments_go_on_with_the_replicas_that_do():
    training, replicas = Training(lr=0.1), [Replica(r, weight_decay=r / 10) for r in range(3)]
    model, alone = module(GCN(), 3), module(GCN(), 3)
    optimizer, other = StackedAdam(model, training, replicas), StackedAdam(alone, training, replicas)
    for step in range(3):
        if step == 1:
            optimizer.keep(torch.tensor([True, False, True]), model)
        for each, stack in ((optimizer, model), (other, alone)):
            each.step(sum(p.square().sum() for p in stack.parameters()))
    for p, whole in zip(model.parameters(), alone.parameters()):
        assert torch.equal(p, whole[[0, 2]])
