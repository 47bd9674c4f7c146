"""A trained model as a function of its edge weights, and with its dropout active."""

from __future__ import annotations

import pytest
import torch

from conftest import random_graph
from graphcal.engine.reweight import Rerun
from graphcal.methods import DCGC
from graphcal.training import Training, train

WEIGHABLE = ["gcn", "gat", "gat-cagcn", "appnp", "gcnii", "jknet", "sage"]


@pytest.fixture(scope="module")
def graph():
    return random_graph()


@pytest.fixture(scope="module")
def outputs(graph):
    short = Training(epochs=20, hidden=8)
    return {name: train(graph, name, short, seeds=[0])[0].outputs for name in WEIGHABLE}


@pytest.mark.parametrize("name", WEIGHABLE)
def test_weights_of_one_change_nothing(name, outputs, graph):
    out = outputs[name]
    assert isinstance(out.rerun, Rerun)
    torch.testing.assert_close(out.rerun(torch.ones(graph.num_edges)), out.logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", WEIGHABLE)
def test_an_edge_without_weight_is_an_edge_that_is_not_there(name, outputs, graph):
    gone = torch.zeros(graph.num_edges, dtype=torch.bool)
    gone[::3] = True
    thinned = graph.clone()
    thinned.edge_index = graph.edge_index[:, ~gone]
    model = train(graph, name, Training(epochs=20, hidden=8), seeds=[0])[0].model
    with torch.no_grad():
        expected = model(thinned.x, thinned.edge_index)
    torch.testing.assert_close(outputs[name].rerun((~gone).float()), expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", WEIGHABLE)
def test_the_gradient_is_that_of_finite_differences(name, outputs, graph):
    rerun = outputs[name].rerun
    g = torch.Generator().manual_seed(0)
    weight = (0.5 + torch.rand(graph.num_edges, generator=g)).requires_grad_()
    probe = torch.randn(outputs[name].logits.shape, generator=g)
    (gradient,) = torch.autograd.grad((rerun(weight) * probe).sum(), weight)
    step = 1e-2 * gradient / gradient.norm()  # uphill, where the difference is large beside rounding
    with torch.no_grad():
        difference = ((rerun(weight + step) - rerun(weight - step)) * probe).sum() / 2
    assert float(gradient @ step) == pytest.approx(float(difference), rel=0.03)
    assert all(p.grad is None for p in rerun.model.parameters())


def test_dropout_is_drawn_from_the_generator(outputs):
    draw = outputs["gcn"].noisy_logits
    a, b = (draw(torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert not torch.equal(a, b)
    assert torch.equal(a, draw(torch.Generator().manual_seed(1)))
    mean = torch.stack([draw(torch.Generator().manual_seed(seed)) for seed in range(200)]).mean(0)
    assert (mean - outputs["gcn"].logits).abs().mean() < 0.3 * (a - outputs["gcn"].logits).abs().mean()


@pytest.mark.parametrize("name", WEIGHABLE)
def test_calibrators_that_run_the_model_again_work_on_it(name, outputs, graph):
    out = outputs[name]
    log_probs = DCGC(calibrator="ts", epochs=3).fit(out, on=graph.val_mask)(out)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(out.num_nodes), atol=1e-5, rtol=0)
