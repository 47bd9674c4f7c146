"""Platt scaling against logistic regression."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from conftest import random_graph
from graphcal.decisions import undo_weights
from graphcal.methods import GraphScaling, Platt
from graphcal.methods.platt import weight_note
from graphcal.methods.solvers.scaling import log_odds
from small_outputs import model_outputs, with_logits


def test_platt_for_two_classes_is_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    graph = random_graph(nodes=400, classes=2, train=20, val=300)
    g = torch.Generator().manual_seed(1)
    logits = torch.randn(400, 2, generator=g)
    graph.y = (torch.rand(400, generator=g) < (2 * (logits[:, 1] - logits[:, 0]) + 0.5).sigmoid()).long()
    out = with_logits(logits, graph)
    fitted = Platt().fit(out, graph.val_mask)
    odds = (logits[:, 1] - logits[:, 0])[graph.val_mask, None].numpy()
    reference = LogisticRegression(C=np.inf, tol=1e-10).fit(odds, graph.y[graph.val_mask].numpy())
    assert float(fitted.slope[1]) == pytest.approx(reference.coef_[0, 0], rel=0.05)  # Platt's targets are smoothed
    assert float(fitted.bias[1]) == pytest.approx(reference.intercept_[0], abs=0.05)


def test_platt_for_two_classes_is_logistic_regression_on_smoothed_targets():
    from sklearn.linear_model import LogisticRegression

    g = torch.Generator().manual_seed(1)
    graph = random_graph(nodes=400, classes=2, train=20, val=300)
    logits = torch.randn(400, 2, generator=g, dtype=torch.double)
    odds = logits[:, 1] - logits[:, 0]
    graph.y = (torch.rand(400, generator=g) < (2 * odds - 1.5).sigmoid()).long()
    out, on = with_logits(logits, graph), graph.val_mask
    y, x = graph.y[on].numpy(), odds[on, None].numpy()
    positive, negative = y.sum(), len(y) - y.sum()
    target = np.where(y == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))  # Platt 1999, section 2.2
    both = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000).fit(
        np.concatenate([x, x]), np.repeat([1, 0], len(y)), np.concatenate([target, 1 - target])
    )
    fitted = Platt().fit(out, on)
    assert fitted.slope.tolist() == pytest.approx([both.coef_[0, 0]] * 2, abs=1e-6)
    assert fitted.bias.tolist() == pytest.approx([-both.intercept_[0], both.intercept_[0]], abs=1e-6)
    expected = both.predict_proba(odds[:, None].numpy())
    np.testing.assert_allclose(fitted(out).exp().numpy(), expected, atol=1e-6)


def test_each_class_is_at_the_minimum_of_its_own_cross_entropy():
    out = model_outputs(random_graph(nodes=600, train=60, val=300)).to(torch.float64)
    on, fitted = out.graph.val_mask, Platt().fit(out, out.graph.val_mask)
    odds, truth = log_odds(out.logits[on]), one_hot(out.graph.y[on], 4).double()
    positive = truth.sum(0)
    target = torch.where(truth > 0, (positive + 1) / (positive + 2), 1 / (len(truth) - positive + 2))

    def loss(slope, bias):
        return binary_cross_entropy_with_logits(slope * odds + bias, target, reduction="none").mean(0)  # (C,)

    best = loss(fitted.slope, fitted.bias)
    for a, b in ((1e-3, 0), (-1e-3, 0), (0, 1e-3), (0, -1e-3)):
        assert (loss(fitted.slope + a, fitted.bias + b) > best).all()


def weighted_model(seed: int, weight: float, nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (n, 2) of a model trained with a class weight, off by a random temperature, and labels; a random base rate."""
    g = torch.Generator().manual_seed(seed)
    rate, temperature = torch.empty(2).uniform_(0, 1, generator=g).tolist()
    odds = 2 * torch.randn(nodes, generator=g) - 4 * rate
    y = (torch.rand(nodes, generator=g) < odds.sigmoid()).long()
    seen = (0.6 + temperature) * odds + np.log(weight)
    return torch.stack([torch.zeros(nodes), seen], 1), y


@pytest.mark.parametrize("nodes", [60, 400, 4000])
def test_models_without_a_class_weight_are_not_accused(nodes: int):
    accused = sum(bool(weight_note(*weighted_model(seed, 1.0, nodes))) for seed in range(500))
    assert accused <= 5


def test_a_class_weight_is_named_and_undone():
    named = [seed for seed in range(100) if weight_note(*weighted_model(seed, 10.0, 400))]
    assert len(named) >= 80
    logits, y = weighted_model(named[0], 10.0, 400)
    graph = random_graph(nodes=400, classes=2, train=20, val=300)
    graph.y = y
    note = GraphScaling().fit(with_logits(logits, graph), graph.val_mask).note
    assert "graphcal.decisions.undo_weights(log_probs, [1, " in note
    weight = float(note.split("[1, ")[1].split("]")[0])
    undone = undo_weights(logits.log_softmax(1), [1, weight]).exp()[:, 1].mean()
    rate = y.double().mean()
    assert abs(undone - rate) < abs(logits.softmax(1)[:, 1].mean() - rate) / 3
