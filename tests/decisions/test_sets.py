"""Prediction sets cover what they promise, whatever the score; by class, per class."""

import math

import numpy as np
import pytest
import torch

from conftest import random_graph
from graphcal.decisions.sets import conformal_quantile, coverage_band, prediction_sets, scores

TIMES, LABELS = 1000, 150


def outputs(says, seed=0, nodes=900, classes=4):
    """Log-probabilities on a graph, honest, too sharp or too flat."""
    graph = random_graph(nodes=nodes, classes=classes, seed=seed)
    g = torch.Generator().manual_seed(seed)
    z = 1.5 * torch.nn.functional.one_hot(graph.y, classes) + 1.2 * torch.randn(nodes, classes, generator=g)
    return (says * z.double()).log_softmax(1), graph.y, graph


@pytest.mark.parametrize("says", [1.0, 3.0, 0.3])
@pytest.mark.parametrize("score", ["thr", "aps", "daps"])
def test_coverage_is_what_is_promised(says, score):
    """Nodes are fixed, certification nodes drawn at random; the scores are computed once, before any draw."""
    log_probs, y, graph = outputs(says)
    true_scores = scores(log_probs, score, graph).gather(1, y[:, None])[:, 0].numpy()
    rng, covered = np.random.default_rng(0), []
    for _ in range(TIMES):
        order = rng.permutation(len(true_scores))
        q = conformal_quantile(torch.from_numpy(true_scores[order[:LABELS]]), 0.9)
        covered.append(np.mean(true_scores[order[LABELS:]] <= q))
    noise = np.std(covered) / np.sqrt(TIMES)
    assert np.mean(covered) >= 0.9 - 3.5 * noise
    assert np.mean(covered) <= 0.9 + 1 / (LABELS + 1) + 3.5 * noise
    low, high = coverage_band(LABELS, 0.9)
    assert 0.8 < np.mean([low <= c <= high for c in covered]) < 0.99


def test_the_sets_are_those_of_the_quantile():
    log_probs, y, graph = outputs(1.0)
    certify = torch.arange(900) % 5 == 0
    for score in ("thr", "aps", "daps"):
        sets = prediction_sets(log_probs, y, certify, 0.8, score, graph=graph)
        values = scores(log_probs, score, graph)
        q = conformal_quantile(values[certify].gather(1, y[certify, None])[:, 0], 0.8)
        assert torch.equal(sets.members, values <= q)
        assert sets.covered(y, ~certify) == pytest.approx(0.8, abs=0.08)
    slices = sets.covered_by(y, {"first": y == 0, "rest": y != 0})
    assert set(slices) == {"first", "rest"}
    assert 0 < sets.to_dict()["mean_size"] < 4


def test_every_class_has_its_coverage_by_class():
    g = torch.Generator().manual_seed(0)
    y = (torch.rand(6000, generator=g) < 0.1).long()  # a rare class that the model neglects
    z = torch.stack([2.0 - 1.5 * y, torch.zeros(6000)], 1) + 0.8 * torch.randn(6000, 2, generator=g)
    log_probs, certify = z.double().log_softmax(1), torch.arange(6000) < 1500
    plain, by_class = (prediction_sets(log_probs, y, certify, by_class=b) for b in (False, True))
    assert plain.covered(y, ~certify & (y == 1)) < 0.8
    assert by_class.covered(y, ~certify & (y == 1)) == pytest.approx(0.9, abs=0.06)
    assert by_class.covered(y, ~certify & (y == 0)) == pytest.approx(0.9, abs=0.03)


def test_aps_is_randomised_mass_of_more_probable_classes():
    log_probs = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.double).log()
    u = float(torch.rand(1, 1, generator=torch.Generator().manual_seed(0), dtype=torch.double))
    expected = [0.5 * u, 0.5 + 0.3 * u, 0.8 + 0.2 * u]
    assert scores(log_probs, "aps")[0].tolist() == pytest.approx(expected)
    assert scores(log_probs, "thr")[0].tolist() == pytest.approx([0.5, 0.7, 0.8])


def test_quantiles_and_refusals():
    assert conformal_quantile(torch.arange(1.0, 11), 0.9) == 10
    assert conformal_quantile(torch.arange(1.0, 9), 0.9) == math.inf
    assert coverage_band(5, 0.99) == (1.0, 1.0)
    log_probs, y, _ = outputs(1.0)
    certify = torch.arange(900) < 100
    with pytest.raises(ValueError, match="daps diffuses scores along edges"):
        prediction_sets(log_probs, y, certify, score="daps")
    with pytest.raises(ValueError, match="unknown score 'best'"):
        prediction_sets(log_probs, y, certify, score="best")
    with pytest.raises(ValueError, match="coverage must lie between"):
        prediction_sets(log_probs, y, certify, coverage=90)
