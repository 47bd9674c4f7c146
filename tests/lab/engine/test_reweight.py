"""A trained model as a function of its edge weights."""

from __future__ import annotations

import pytest
import torch

from conftest import random_graph
from graphcal.lab.models import BACKBONES, ModelConfig
from graphcal.lab.training import Training, train

SHORT = Training(epochs=20, hidden_channels=8)
CONFIG = ModelConfig(1, 1, 2, 0.0, 0.0, "glorot")
WEIGHABLE = [
    name for name, kind in BACKBONES.items() if kind().build(CONFIG, [torch.Generator()]).normalisation is not None
]


@pytest.fixture(scope="module")
def graph():
    return random_graph()


@pytest.fixture(scope="module")
def runs(graph):
    return {name: train(graph, name, SHORT, seeds=[0])[0] for name in WEIGHABLE}


def test_these_backbones_read_weights_on_their_edges():
    assert {"gcn", "gat", "appnp", "gcnii", "jknet", "sage"} <= set(WEIGHABLE)


@pytest.mark.slow_cases("gcn")
@pytest.mark.parametrize("name", WEIGHABLE)
def test_weights_of_one_change_nothing(name, runs, graph):
    out = runs[name].outputs
    weighted = out.rerun("this test", edge_weight=torch.ones(graph.num_edges))
    torch.testing.assert_close(weighted, out.logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", WEIGHABLE)
def test_an_edge_without_weight_is_an_edge_that_is_not_there(name, runs, graph):
    gone = torch.zeros(graph.num_edges, dtype=torch.bool)
    gone[::3] = True
    with torch.no_grad():
        expected = runs[name].model(graph.x, graph.edge_index[:, ~gone])
    weighted = runs[name].outputs.rerun("this test", edge_weight=(~gone).float())
    torch.testing.assert_close(weighted, expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", WEIGHABLE)
def test_the_gradient_is_that_of_finite_differences(name, runs, graph):
    handle = runs[name].outputs.model
    g = torch.Generator().manual_seed(0)
    weight = (0.5 + torch.rand(graph.num_edges, generator=g)).requires_grad_()
    probe = torch.randn(runs[name].outputs.logits.shape, generator=g)
    (gradient,) = torch.autograd.grad((handle.logits(edge_weight=weight) * probe).sum(), weight)
    step = 1e-2 * gradient / gradient.norm()  # uphill, where the difference is large beside rounding
    with torch.no_grad():
        up, down = (handle.logits(edge_weight=weight + sign * step) for sign in (1, -1))
    assert float(gradient @ step) == pytest.approx(float(((up - down) * probe).sum() / 2), rel=0.03)
    assert all(p.grad is None for p in handle.replicas.parameters())
