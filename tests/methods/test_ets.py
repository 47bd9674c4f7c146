"""The weights of ensemble temperature scaling."""

from __future__ import annotations

import pytest
import torch

from conftest import random_graph
from graphcal.methods import EnsembleTemperatureScaling
from small_outputs import model_outputs, on_val, val_nll, with_logits


@pytest.fixture(scope="module")
def out():
    return model_outputs(random_graph(nodes=600, train=60, val=300))


def test_ensemble_weights_are_the_best_of_the_simplex(out):
    fitted = EnsembleTemperatureScaling().fit(out, out.graph.val_mask)
    z, y = on_val(out)
    s = float(fitted.scale)
    parts = torch.stack([(s * z).softmax(-1), z.softmax(-1), torch.full_like(z, 0.25)], -1)[torch.arange(len(y)), y]
    grid = [(a / 50, b / 50, (50 - a - b) / 50) for a in range(51) for b in range(51 - a)]
    best = min(float(-(parts @ torch.tensor(w, dtype=torch.double)).log().mean()) for w in grid)
    assert val_nll(fitted, out) <= best + 1e-6
    assert float(fitted.weights.sum()) == pytest.approx(1.0, abs=1e-6)
    assert (fitted.weights >= 0).all()


def test_ensemble_mixes_when_the_labels_are_noisy():
    g = torch.Generator().manual_seed(0)
    graph = random_graph(nodes=800, train=20, val=600)
    logits = 6 * torch.randn(800, 4, generator=g)
    noisy = torch.where(torch.rand(800, generator=g) < 0.3, torch.randint(4, (800,), generator=g), logits.argmax(-1))
    graph.y = noisy
    fitted = EnsembleTemperatureScaling().fit(with_logits(logits, graph), graph.val_mask)
    assert 0.2 < float(fitted.weights[2]) < 0.4  # the share of labels that are drawn blindly
