"""The network that ignores the graph."""

import pytest
import torch
from pyg_weights import model_of, same_logits

from graphcal.lab.models import MLP


def test_it_is_the_plain_network(graph):
    model, ours = model_of(MLP(layers=3))
    h = graph.x
    for layer in ours.layers:
        h = (h @ layer.weight[0] + layer.bias[0]).relu()
    same_logits(model, graph, h @ ours.head.weight[0] + ours.head.bias[0])


def test_the_edges_are_not_read(graph):
    model, _ = model_of(MLP())
    with torch.no_grad():
        alone = model(graph.x, torch.empty(2, 0, dtype=torch.long))
    same_logits(model, graph, alone)


def test_one_layer_is_refused():
    with pytest.raises(ValueError, match="an MLP has at least 2 layers; got layers=1"):
        model_of(MLP(layers=1))
