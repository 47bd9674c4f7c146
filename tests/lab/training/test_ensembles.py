"""MC dropout and deep ensembles."""

import pytest
import torch

from graphcal.lab.training import Training, ensemble, mc_dropout, train

SETTINGS = Training(hidden_channels=8, epochs=30, patience=None)


def test_an_ensemble_is_the_mean_probability(graph):
    runs = train(graph, training=SETTINGS, seeds=range(3))
    mean = torch.stack([run.outputs.logits.softmax(-1) for run in runs]).mean(0)
    together = ensemble(runs)
    assert torch.allclose(together.logits.softmax(-1), mean, atol=1e-6)
    assert together.final is None
    assert together.graph is graph


def test_mc_dropout_is_the_mean_over_passes(graph):
    run = train(graph, training=SETTINGS, seeds=[0])[0]
    samples = run.model.sample(graph.x, graph.edge_index, seed=5, passes=20)
    assert samples.shape == (20, 150, 4)
    assert samples.std(0).mean() > 0.01
    sampled = mc_dropout(run, passes=20, seed=5)
    assert torch.allclose(sampled.logits.exp(), samples.softmax(-1).mean(0), atol=1e-6)
    assert torch.equal(sampled.logits, mc_dropout(run, passes=20, seed=5).logits)
    assert not torch.equal(sampled.logits, mc_dropout(run, passes=20, seed=6).logits)


def test_without_dropout_every_sample_is_the_model(graph):
    run = train(graph, training=Training(hidden_channels=8, epochs=10, dropout=0.0), seeds=[0])[0]
    assert torch.allclose(mc_dropout(run, passes=3).logits.exp(), run.outputs.logits.softmax(-1), atol=1e-6)


def test_wrong_requests_are_named(graph):
    run = train(graph, training=SETTINGS, seeds=[0])[0]
    with pytest.raises(ValueError, match="passes must be at least 1; got 0"):
        mc_dropout(run, passes=0)
    with pytest.raises(ValueError, match="at least one run"):
        ensemble([])
    with pytest.raises(ValueError, match="must share one graph"):
        ensemble([run, train(graph.clone(), training=SETTINGS, seeds=[0])[0]])
