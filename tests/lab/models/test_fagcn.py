"""FAGCN against PyG's FAConv."""

import torch
from pyg_weights import first_and_last, model_of, put, same_logits
from torch_geometric import nn as pyg

from graphcal.lab.models import FAGCN


def test_it_is_pygs_with_the_same_weights(graph):
    model, ours = model_of(FAGCN(layers=2, eps=0.4))
    first, last = first_and_last(ours)
    h = h0 = first(graph.x).relu()
    for gate in ours.gates:
        put(gate.bias, torch.zeros(1))  # PyG's gate has none
        layer = pyg.FAConv(6, eps=0.4, add_self_loops=False)
        mine, others = gate.weight[0].T.chunk(2, dim=-1)
        put(layer.att_r.weight, mine)
        put(layer.att_l.weight, others)
        h = layer(h, h0, graph.edge_index)
    same_logits(model, graph, last(h))
