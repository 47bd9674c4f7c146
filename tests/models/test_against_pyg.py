"""Each backbone with the weights of PyG's layers of the same name gives their output."""

import pytest
import torch
from torch_geometric import nn as pyg

from graphcal.models import APPNP, FAGCN, GAT, GCN, GCNII, SGC, GraphSAGE, JKNet, Shape, SingleModel

SHAPE = Shape(features=10, classes=4, hidden=6, dropout=0.5, input_dropout=0.0, init="glorot")


def model_of(spec):
    generator = torch.Generator().manual_seed(0)
    module = spec.build(SHAPE, [generator])
    with torch.no_grad():
        for p in module.parameters():  # biases too, which start at zero
            p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
    return SingleModel(spec, module).eval(), module


def put(parameter, value):
    with torch.no_grad():
        parameter.copy_(value.reshape(parameter.shape))


def put_linear(layer, weight, bias=None):
    put(layer.weight, weight[0].T)
    if bias is not None:
        put(layer.bias, bias[0])


def compare(model, graph, expected):
    with torch.no_grad():
        assert torch.allclose(model(graph.x, graph.edge_index), expected, atol=1e-5)


@pytest.mark.parametrize("layers", [2, 3])
def test_gcn(graph, layers):
    model, ours = model_of(GCN(layers=layers))
    theirs = pyg.models.GCN(10, 6, layers, 4, dropout=0.5).eval()
    for conv, layer in zip(theirs.convs, [*ours.convs, ours.head]):
        put(conv.lin.weight, layer.weight[0].T)
        put(conv.bias, layer.bias[0])
    compare(model, graph, theirs(graph.x, graph.edge_index))


@pytest.mark.parametrize("output_heads", [1, 3])
def test_gat(graph, output_heads):
    model, ours = model_of(GAT(heads=2, output_heads=output_heads))
    first = pyg.GATConv(10, 6, heads=2)
    last = pyg.GATConv(12, 4, heads=output_heads, concat=False)
    for conv, layer in ((first, ours.conv), (last, ours.head)):
        put(conv.lin.weight, layer.weight[0].T)
        put(conv.att_src, layer.source[0])
        put(conv.att_dst, layer.target[0])
        put(conv.bias, layer.bias[0])
    expected = last(torch.nn.functional.elu(first(graph.x, graph.edge_index)), graph.edge_index)
    compare(model, graph, expected)


@pytest.mark.parametrize("two_weights", [False, True])
def test_gcnii(graph, two_weights):
    model, ours = model_of(GCNII(layers=5, alpha=0.2, theta=0.7, two_weights=two_weights))
    first, last = torch.nn.Linear(10, 6), torch.nn.Linear(6, 4)
    put_linear(first, ours.first.weight, ours.first.bias)
    put_linear(last, ours.head.weight, ours.head.bias)
    h = h0 = first(graph.x).relu()
    for k, conv in enumerate(ours.convs):
        layer = pyg.GCN2Conv(6, alpha=0.2, theta=0.7, layer=k + 1, shared_weights=not two_weights)
        if two_weights:  # PyG's second form weighs (1 - alpha) A h and alpha h_0, the official code A h and h_0
            put(layer.weight1, conv.weight[0, :6] / 0.8)
            put(layer.weight2, conv.weight[0, 6:] / 0.2)
        else:
            put(layer.weight1, conv.weight[0])
        h = layer(h, h0, graph.edge_index).relu()
    compare(model, graph, last(h))


def test_fagcn(graph):
    model, ours = model_of(FAGCN(layers=2, eps=0.4))
    first, last = torch.nn.Linear(10, 6), torch.nn.Linear(6, 4)
    put_linear(first, ours.first.weight, ours.first.bias)
    put_linear(last, ours.head.weight, ours.head.bias)
    h = h0 = first(graph.x).relu()
    for gate in ours.gates:
        put(gate.bias, torch.zeros(1))  # PyG's gate has none
        layer = pyg.FAConv(6, eps=0.4, add_self_loops=False)
        mine, others = gate.weight[0].T.chunk(2, dim=-1)
        put(layer.att_r.weight, mine)
        put(layer.att_l.weight, others)
        h = layer(h, h0, graph.edge_index)
    compare(model, graph, last(h))


@pytest.mark.parametrize("layers", [2, 3])
def test_sage(graph, layers):
    model, ours = model_of(GraphSAGE(layers=layers))
    theirs = pyg.models.GraphSAGE(10, 6, layers, 4, dropout=0.5).eval()
    near, root = ours.head.weight[0].chunk(2)
    for conv, neighbours, roots in zip(theirs.convs, ours.neighbours, ours.roots):
        put_linear(conv.lin_l, neighbours.weight, neighbours.bias)
        put_linear(conv.lin_r, roots.weight)
    put_linear(theirs.convs[-1].lin_l, near[None], ours.head.bias)
    put_linear(theirs.convs[-1].lin_r, root[None])
    compare(model, graph, theirs(graph.x, graph.edge_index))


def test_appnp(graph):
    model, ours = model_of(APPNP(hops=7, teleport=0.2))
    first, last = torch.nn.Linear(10, 6), torch.nn.Linear(6, 4)
    put_linear(first, ours.first.weight, ours.first.bias)
    put_linear(last, ours.head.weight, ours.head.bias)
    expected = pyg.APPNP(K=7, alpha=0.2)(last(first(graph.x).relu()), graph.edge_index)
    compare(model, graph, expected)


def test_sgc(graph):
    model, ours = model_of(SGC(hops=3))
    theirs = pyg.SGConv(10, 4, K=3)
    put_linear(theirs.lin, ours.head.weight, ours.head.bias)
    compare(model, graph, theirs(graph.x, graph.edge_index))


@pytest.mark.parametrize("mode", ["cat", "max"])
def test_jknet(graph, mode):
    model, ours = model_of(JKNet(layers=3, mode=mode))
    theirs = pyg.models.GCN(10, 6, 3, 4, dropout=0.5, jk=mode).eval()
    for conv, layer in zip(theirs.convs, ours.convs):
        put(conv.lin.weight, layer.weight[0].T)
        put(conv.bias, layer.bias[0])
    put_linear(theirs.lin, ours.head.weight, ours.head.bias)
    compare(model, graph, theirs(graph.x, graph.edge_index))


def test_directed_edges_run_as_in_pyg(graph):
    """PyG's messages run from edge_index[0] to edge_index[1]."""
    directed = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    model, ours = model_of(GraphSAGE())
    theirs = pyg.models.GraphSAGE(10, 6, 2, 4, dropout=0.5).eval()
    near, root = ours.head.weight[0].chunk(2)
    put_linear(theirs.convs[0].lin_l, ours.neighbours[0].weight, ours.neighbours[0].bias)
    put_linear(theirs.convs[0].lin_r, ours.roots[0].weight)
    put_linear(theirs.convs[1].lin_l, near[None], ours.head.bias)
    put_linear(theirs.convs[1].lin_r, root[None])
    with torch.no_grad():
        assert torch.allclose(model(graph.x, directed), theirs(graph.x, directed), atol=1e-5)
