"""SGC against PyG's."""

from pyg_weights import model_of, put_linear, same_logits
from torch_geometric import nn as pyg

from graphcal.lab.models import SGC


def test_it_is_pygs_with_the_same_weights(graph):
    model, ours = model_of(SGC(hops=3))
    theirs = pyg.SGConv(10, 4, K=3)
    put_linear(theirs.lin, ours.head.weight, ours.head.bias)
    same_logits(model, graph, theirs(graph.x, graph.edge_index))
