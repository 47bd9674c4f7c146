"""APPNP against PyG's."""

from pyg_weights import first_and_last, model_of, same_logits
from torch_geometric import nn as pyg

from graphcal.lab.models import APPNP


def test_it_is_pygs_with_the_same_weights(graph):
    model, ours = model_of(APPNP(hops=7, teleport=0.2))
    first, last = first_and_last(ours)
    expected = pyg.APPNP(K=7, alpha=0.2)(last(first(graph.x).relu()), graph.edge_index)
    same_logits(model, graph, expected)
