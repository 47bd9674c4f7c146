"""GCNII against PyG's GCN2Conv."""

import math
from dataclasses import replace

import pytest
import torch
from pyg_weights import first_and_last, model_of, put, same_logits
from torch_geometric import nn as pyg

from graphcal.lab.engine.layers import Dropout
from graphcal.lab.engine.receptive import full_graph
from graphcal.lab.models import GCNII
from graphcal.lab.models.replicas import graph_input


@pytest.mark.parametrize("two_weights", [False, True])
def test_it_is_pygs_with_the_same_weights(graph, two_weights):
    model, ours = model_of(GCNII(layers=5, alpha=0.2, theta=0.7, two_weights=two_weights))
    first, last = first_and_last(ours)
    h = h0 = first(graph.x).relu()
    for k, conv in enumerate(ours.convs):
        layer = pyg.GCN2Conv(6, alpha=0.2, theta=0.7, layer=k + 1, shared_weights=not two_weights)
        if two_weights:  # PyG's second form weighs (1 - alpha) A h and alpha h_0, the official code A h and h_0
            put(layer.weight1, conv.weight[0, :6] / 0.8)
            put(layer.weight2, conv.weight[0, 6:] / 0.2)
        else:
            put(layer.weight1, conv.weight[0])
        h = layer(h, h0, graph.edge_index).relu()
    same_logits(model, graph, last(h))


def test_the_convolutions_have_a_decay_of_their_own():
    _, ours = model_of(GCNII(layers=3, conv_weight_decay=0.2))
    assert list(ours.own_weight_decay().values()) == [0.2] * 3
    assert not set(ours.own_weight_decay()) & {*ours.first.parameters(), *ours.head.parameters()}


@pytest.mark.parametrize("p", [0.0, 0.25])
def test_a_layer_has_the_gradients_of_its_formula(graph, p):
    """Eq. 5 as it is written, by autograd, with the masks that the model draws."""
    a, theta = 0.3, 0.7
    backbone = GCNII(layers=3, alpha=a, theta=theta)
    _, ours = model_of(backbone)
    ours.config = replace(ours.config, dropout=p)
    field, drop = full_graph(graph_input(backbone, graph.x, graph.edge_index, 0.0), ours.depth), Dropout([5], 2)
    logits = ours(field, drop)
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad((logits * weights).sum(), list(ours.parameters()))

    def dropped(h, layer):
        return drop(h, field.nodes[0], p, layer)

    h0 = (field.project(ours.first.weight, drop) + ours.first.bias).relu()
    h = dropped(h0, 1)
    for k, conv in enumerate(ours.convs):
        s, t = (1 - a) * (field.hops[k] @ h) + a * h0, math.log(theta / (k + 1) + 1)
        h = dropped(((1 - t) * s + t * s @ conv.weight).relu(), k + 2)
    assert torch.allclose(ours.head(h), logits, atol=1e-5)
    expected = torch.autograd.grad((ours.head(h) * weights).sum(), list(ours.parameters()))
    for mine, theirs in zip(gradients, expected):
        assert torch.allclose(mine, theirs, atol=1e-4)


def test_a_share_that_leaves_no_graph_is_refused():
    with pytest.raises(ValueError, match=r"alpha=1 .* choose 0 <= alpha < 1"):
        GCNII(alpha=1)
