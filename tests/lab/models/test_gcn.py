"""GCN against PyG's."""

import pytest
from pyg_weights import model_of, put_conv, same_logits
from torch_geometric import nn as pyg

from graphcal.lab.models import GCN


@pytest.mark.parametrize("layers", [2, 3])
def test_it_is_pygs_with_the_same_weights(graph, layers):
    model, ours = model_of(GCN(layers=layers))
    theirs = pyg.models.GCN(10, 6, layers, 4, dropout=0.5).eval()
    for conv, layer in zip(theirs.convs, [*ours.convs, ours.head]):
        put_conv(conv, layer)
    same_logits(model, graph, theirs(graph.x, graph.edge_index))


def test_one_layer_is_refused():
    with pytest.raises(ValueError, match="a GCN has at least 2 layers; got layers=1"):
        model_of(GCN(layers=1))
