"""Layers of replicas, and how their weights are drawn."""

from __future__ import annotations

import pytest
import torch
from gradients import same_value_and_gradients

from graphcal.lab.engine.layers import INITS, Linear, init_param, nodes_first
from graphcal.plugins import UnknownName

IN, OUT = 50, 20
LAWS = {  # deviation of the weight; largest size of the weight and of the bias, None: no bound
    "uniform": (OUT**-0.5 / 3**0.5, OUT**-0.5, OUT**-0.5),
    "glorot": ((2 / (IN + OUT)) ** 0.5, (6 / (IN + OUT)) ** 0.5, 0.0),
    "linear": (IN**-0.5 / 3**0.5, IN**-0.5, IN**-0.5),
    "xavier-normal": (1.414 * (2 / (IN + OUT)) ** 0.5, None, IN**-0.5),
}


def drawn(name, shape, bias=False, seeds=(0,)):
    return init_param(shape, IN, OUT, [torch.Generator().manual_seed(s) for s in seeds], name, bias).detach()


@pytest.mark.parametrize("name", LAWS)
def test_the_law(name):
    deviation, bound, bias_bound = LAWS[name]
    weight, bias = drawn(name, (400, 200))[0], drawn(name, (1, 4000), bias=True)[0]
    assert float(weight.std()) == pytest.approx(deviation, rel=0.02)
    assert abs(float(weight.mean())) < 0.02 * deviation
    assert bound is None or float(weight.abs().max()) <= bound
    assert float(bias.abs().max()) <= bias_bound


@pytest.mark.parametrize("name", list(INITS))
def test_a_replica_depends_on_its_own_generator_only(name):
    three = drawn(name, (6, 5), seeds=(4, 5, 6))
    assert three.shape == (3, 6, 5)
    assert torch.equal(three[1], drawn(name, (6, 5), seeds=(5,))[0])
    assert not torch.equal(three[0], three[1])


def test_an_unknown_name_lists_the_choices():
    with pytest.raises(UnknownName, match="unknown init 'he'; choose among uniform, glorot, linear, xavier-normal"):
        drawn("he", (2, 2))


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def test_linear_is_a_linear_map_per_replica():
    layer, h = Linear(5, 3, generators(1, 2), "linear"), torch.randn(2, 7, 5)
    out = layer(h)
    for r in range(2):
        assert torch.allclose(out[r], torch.nn.functional.linear(h[r], layer.weight[r].T, layer.bias[r, 0]), atol=1e-6)
    assert torch.equal(Linear(5, 3, generators(2), "linear").weight[0], layer.weight[1])


def test_a_layer_may_have_no_bias():
    layer = Linear(5, 3, generators(1), "glorot", bias=False)
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    assert torch.equal(layer(torch.zeros(1, 2, 5)), torch.zeros(1, 2, 3))


def test_nodes_first():
    plain = lambda x: x.transpose(0, 1).reshape(x.shape[1], -1)  # noqa: E731
    same_value_and_gradients(nodes_first, plain, torch.randn(3, 6, 2))
