"""GraphSAGE against PyG's."""

import pytest
import torch
from pyg_weights import model_of, put_linear, same_logits
from torch_geometric import nn as pyg

from graphcal.lab.models import GraphSAGE


def pygs(ours, layers):
    theirs = pyg.models.GraphSAGE(10, 6, layers, 4, dropout=0.5).eval()
    near, root = ours.head.weight[0].chunk(2)
    for conv, neighbours, roots in zip(theirs.convs, ours.neighbours, ours.roots):
        put_linear(conv.lin_l, neighbours.weight, neighbours.bias)
        put_linear(conv.lin_r, roots.weight)
    put_linear(theirs.convs[-1].lin_l, near[None], ours.head.bias)
    put_linear(theirs.convs[-1].lin_r, root[None])
    return theirs


@pytest.mark.parametrize("layers", [2, 3])
def test_it_is_pygs_with_the_same_weights(graph, layers):
    model, ours = model_of(GraphSAGE(layers=layers))
    same_logits(model, graph, pygs(ours, layers)(graph.x, graph.edge_index))


def test_directed_edges_run_as_in_pyg(graph):
    """PyG's messages run from edge_index[0] to edge_index[1]."""
    directed = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    model, ours = model_of(GraphSAGE())
    with torch.no_grad():
        assert torch.allclose(model(graph.x, directed), pygs(ours, 2)(graph.x, directed), atol=1e-5)
