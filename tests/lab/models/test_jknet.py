"""JK-Net against PyG's."""

import pytest
from pyg_weights import model_of, put_conv, put_linear, same_logits
from torch_geometric import nn as pyg

from graphcal.lab.models import JKNet


@pytest.mark.parametrize("mode", ["cat", "max"])
def test_it_is_pygs_with_the_same_weights(graph, mode):
    model, ours = model_of(JKNet(layers=3, mode=mode))
    theirs = pyg.models.GCN(10, 6, 3, 4, dropout=0.5, jk=mode).eval()
    for conv, layer in zip(theirs.convs, ours.convs):
        put_conv(conv, layer)
    put_linear(theirs.lin, ours.head.weight, ours.head.bias)
    same_logits(model, graph, theirs(graph.x, graph.edge_index))


def test_an_unknown_jump_lists_the_choices():
    with pytest.raises(ValueError, match="mode='lstm' is not a way to jump; choose among cat, max"):
        JKNet(mode="lstm")
