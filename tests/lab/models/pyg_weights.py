"""Shared by the tests of single models: a model with random weights, and the same weights in PyG's layers."""

import torch

from graphcal.lab.models import ModelConfig, TrainedGNN

CONFIG = ModelConfig(in_channels=10, hidden_channels=6, num_classes=4, dropout=0.5, input_dropout=0.0, init="glorot")


def model_of(backbone):
    """A model on its own, and its one replica."""
    generator = torch.Generator().manual_seed(0)
    replicas = backbone.build(CONFIG, [generator])
    with torch.no_grad():
        for p in replicas.parameters():  # biases too, which start at zero
            p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
    return TrainedGNN(backbone, replicas).eval(), replicas


def put(parameter, value):
    with torch.no_grad():
        parameter.copy_(value.reshape(parameter.shape))


def put_linear(layer, weight, bias=None):
    put(layer.weight, weight[0].T)
    if bias is not None:
        put(layer.bias, bias[0])


def put_conv(conv, layer):
    """A GCNConv's weights from a linear layer of ours."""
    put(conv.lin.weight, layer.weight[0].T)
    put(conv.bias, layer.bias[0])


def first_and_last(ours):
    first, last = torch.nn.Linear(10, 6), torch.nn.Linear(6, 4)
    put_linear(first, ours.first.weight, ours.first.bias)
    put_linear(last, ours.head.weight, ours.head.bias)
    return first, last


def same_logits(model, graph, expected):
    with torch.no_grad():
        assert torch.allclose(model(graph.x, graph.edge_index), expected, atol=1e-5)
