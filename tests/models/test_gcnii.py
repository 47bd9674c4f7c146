"""GCNII against PyG's GCN2Conv."""

import pytest
from pyg_weights import first_and_last, model_of, put, same_logits
from torch_geometric import nn as pyg

from graphcal.models import GCNII


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
