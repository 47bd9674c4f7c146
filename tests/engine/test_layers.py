"""Layers with a replica axis."""

import torch
from gradients import same_value_and_gradients

from graphcal.engine.layers import Linear, nodes_first


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
