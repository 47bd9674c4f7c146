"""Facts of a graph, and what a graph and its nodes are known by."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from conftest import random_graph
from graphcal.graphs import (
    fingerprint,
    is_undirected,
    neighbour_agreement,
    structure,
)

# 0 - 1 - 2 - 3   4 (isolated); node 0 is in the training set
PATH = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])


def path() -> Data:
    train = torch.tensor([True, False, False, False, False])
    return Data(edge_index=PATH, train_mask=train, y=torch.tensor([0, 0, 1, 1, 0]), num_nodes=5)


def test_hops_and_next_to_training():
    facts = structure(path())
    assert facts.hops.tolist() == [0, 1, 2, 3, -1]
    assert facts.next_to_training.tolist() == [False, True, False, False, False]
    assert facts.degree.tolist() == [1, 2, 2, 1, 0]


def test_adjacency_is_pygs_gcn_norm(graph):
    index, weight = gcn_norm(graph.edge_index, None, graph.num_nodes)
    dense = torch.zeros(graph.num_nodes, graph.num_nodes)
    dense[index[1], index[0]] = weight
    assert torch.allclose(structure(graph).adjacency.to_dense(), dense, atol=1e-6)


def test_self_loops_and_duplicates_are_dropped():
    data = path()
    data.edge_index = torch.cat([PATH, PATH[:, :2], torch.tensor([[2], [2]])], 1)
    assert torch.equal(structure(data).edge_index, structure(path()).edge_index)


def test_facts_are_shared_until_the_graph_changes():
    data = path()
    facts = structure(data)
    assert structure(data) is facts
    data.train_mask[3] = True  # in place
    assert structure(data).hops.tolist() == [0, 1, 1, 0, -1]
    data.edge_index = PATH[:, :2]
    assert structure(data).degree.tolist() == [1, 1, 0, 0, 0]


def test_neighbour_mean_and_agreement():
    data = path()
    facts = structure(data)
    assert facts.neighbour_mean(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])).tolist() == [2, 2, 3, 3, 5]
    assert neighbour_agreement(data.y, facts).tolist() == [1, 0.5, 0.5, 1, 1]


def test_without_a_training_mask_every_node_is_far():
    data = path()
    del data.train_mask
    assert structure(data).hops.tolist() == [-1] * 5


GRAPH = random_graph()
KEYS = [331710650202629758, -4509186500364518793]
FINGERPRINT = "add50c5697814d22"


def changed(graph: Data, **fields) -> Data:
    new = graph.clone()
    for name, value in fields.items():
        new[name] = value
    return new


def test_a_fingerprint_is_of_nodes_and_edges_in_any_order():
    before = fingerprint(GRAPH)
    assert len(before) == 16
    order = torch.randperm(GRAPH.edge_index.shape[1])
    assert fingerprint(changed(GRAPH, edge_index=GRAPH.edge_index[:, order])) == before
    assert fingerprint(changed(GRAPH, x=GRAPH.x + 1)) == before
    assert fingerprint(changed(GRAPH, edge_index=GRAPH.edge_index[:, 1:])) != before
    assert fingerprint(changed(GRAPH, edge_index=GRAPH.edge_index.flip(0)[:, : order.numel() - 1])) != before
    assert fingerprint(changed(GRAPH, train_mask=GRAPH.val_mask)) == before
    assert fingerprint(changed(GRAPH, num_nodes=151, x=None)) != before
    assert fingerprint(Data(x=GRAPH.x)) is None


def test_two_edges_that_swap_ends_are_another_graph():
    """(0, 1), (2, 3) and (0, 3), (2, 1) have the same sums of ends."""
    a = Data(edge_index=torch.tensor([[0, 2], [1, 3]]), num_nodes=4)
    b = Data(edge_index=torch.tensor([[0, 2], [3, 1]]), num_nodes=4)
    assert fingerprint(a) != fingerprint(b)


def test_a_fingerprint_is_the_same_in_every_version():
    """They are in saved files."""
    graph = Data(x=torch.tensor([[1.0, 0.0], [0.5, -2.0]]), edge_index=torch.tensor([[0], [1]]), num_nodes=2)
    assert fingerprint(graph) == FINGERPRINT


def test_an_edge_that_is_repeated_in_one_direction_has_its_reverse_all_the_same():
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    assert is_undirected(edges)
    assert is_undirected(torch.cat([edges, edges[:, :1]], 1))
    assert not is_undirected(edges[:, :3])
    assert is_undirected(edges[:, :0])


def test_tensors_made_in_inference_mode_are_noticed_when_they_change():
    with torch.inference_mode():
        data = path()
        data.edge_index, data.train_mask = data.edge_index.clone(), data.train_mask.clone()
        facts = structure(data)
        assert structure(data) is facts
        data.train_mask[3] = True
        assert structure(data).hops.tolist() == [0, 1, 1, 0, -1]
        data.edge_index[:, 4:] = 0
        assert structure(data).degree.tolist() == [1, 2, 1, 0, 0]


def test_facts_computed_in_inference_mode_are_not_used_for_gradients():
    data = path()
    with torch.inference_mode():
        assert structure(data).adjacency.is_inference()
    values = torch.randn(5, 2, requires_grad=True)
    (structure(data).adjacency @ values).sum().backward()
    assert values.grad.isfinite().all()


def test_sums_over_neighbours_are_in_single_precision_under_autocast():
    values = torch.randn(5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        total = structure(path()).neighbour_sum(values)
    assert torch.equal(total, structure(path()).neighbour_sum(values))
