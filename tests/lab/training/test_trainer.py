"""From a graph to trained runs."""

import doctest
from dataclasses import replace

import pytest
import torch

import graphcal.observation
from graphcal.lab.training import (
    Replica,
    Training,
    settings,
    train,
    train_replicas,
    trainer,
)
from graphcal.serving import calibrated_model

QUICK = Training(hidden_channels=8, epochs=30, patience=None)


def test_replicas_may_have_their_own_splits(graph):
    """A sweep of splits: each replica trains on its masks, and its outputs carry them."""
    swapped = Replica(1, train_mask=graph.val_mask, val_mask=graph.train_mask)
    first, second = train_replicas(graph, "gcn", QUICK, [Replica(1), swapped])
    other = graph.clone()
    other.train_mask, other.val_mask = graph.val_mask, graph.train_mask
    assert torch.allclose(second.outputs.logits, train(other, training=QUICK, seeds=[1])[0].outputs.logits, atol=1e-4)
    assert torch.equal(second.outputs.graph.train_mask, graph.val_mask)
    assert first.outputs.graph is graph
    assert not torch.allclose(first.outputs.logits, second.outputs.logits, atol=1e-2)


def test_no_seed_no_run(graph):
    assert train(graph, seeds=[]) == []


def test_a_training_that_diverges_says_so(graph):
    with pytest.raises(ValueError, match="the training of seed 2 diverged"):
        train(graph, training=replace(QUICK, lr=1e30), seeds=[2])


def test_bad_input_is_named(graph):
    def changed(**values):
        other = graph.clone()
        for key, value in values.items():
            other[key] = value
        return other

    nothing = torch.zeros(150, dtype=torch.bool)
    with pytest.raises(ValueError, match="val_mask selects no node"):
        train(changed(val_mask=nothing), training=QUICK)
    with pytest.raises(ValueError, match="train_mask has 3 entries, but there are 150 nodes"):
        train(changed(train_mask=torch.ones(3, dtype=torch.bool)), training=QUICK)
    with pytest.raises(ValueError, match="share 60 nodes"):
        train(changed(train_mask=graph.val_mask), training=QUICK)
    with pytest.raises(ValueError, match="no val_mask"):
        train(changed(val_mask=None), training=QUICK)
    with pytest.raises(ValueError, match="labels must be"):
        train(changed(y=graph.y - 1), training=QUICK)
    with pytest.raises(ValueError, match="no labels"):
        train(changed(y=None), training=QUICK)
    with pytest.raises(ValueError, match="names nodes"):
        train(changed(edge_index=graph.edge_index + 100), training=QUICK)
    with pytest.raises(ValueError, match="features x are not finite"):
        train(changed(x=graph.x.where(graph.x < 2, torch.nan)), training=QUICK)
    with pytest.raises(ValueError, match="unknown backbone"):
        train(graph, "transformer")


@pytest.mark.slow
def test_a_real_graph_reproduces_the_published_accuracy():
    """Citeseer, CaGCN's recipe: published 71.71 (10 seeds)."""
    from graphcal.lab.datasets import load

    data = load("citeseer")
    runs = train(data, seeds=range(2))
    accuracy = [float((run.outputs.pred == data.y)[data.test_mask].double().mean()) for run in runs]
    assert 0.70 < sum(accuracy) / 2 < 0.73


def test_a_number_of_seeds_is_a_range(graph):
    assert [run.seed for run in train(graph, training=QUICK, seeds=3)] == [0, 1, 2]


MODULES = [trainer, settings, graphcal.observation, calibrated_model]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_the_examples_run(module):
    tried = doctest.testmod(module)
    assert tried.attempted > 0
    assert tried.failed == 0
