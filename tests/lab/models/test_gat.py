"""GAT against PyG's layers."""

import pytest
import torch
from pyg_weights import model_of, put, same_logits
from torch_geometric import nn as pyg

from graphcal.lab.models import GAT


@pytest.mark.parametrize("output_heads", [1, 3])
def test_it_is_pygs_with_the_same_weights(graph, output_heads):
    model, ours = model_of(GAT(heads=2, output_heads=output_heads))
    first = pyg.GATConv(10, 6, heads=2)
    last = pyg.GATConv(12, 4, heads=output_heads, concat=False)
    for conv, layer in ((first, ours.conv), (last, ours.head)):
        put(conv.lin.weight, layer.weight[0].T)
        put(conv.att_src, layer.source[0])
        put(conv.att_dst, layer.target[0])
        put(conv.bias, layer.bias[0])
    expected = last(torch.nn.functional.elu(first(graph.x, graph.edge_index)), graph.edge_index)
    same_logits(model, graph, expected)


def test_only_the_projection_is_the_lever():
    """The attention vectors and the bias of the last layer keep the other layers' decay."""
    _, ours = model_of(GAT())
    assert [id(p) for p in ours.final_parameters()] == [id(ours.head.weight)]
