"""Facts of a graph, and what a graph and its nodes are known by."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from conftest import random_graph
from graphcal.graphs import (
    fingerprint,
    is_undirected,
    neighbour_agreement,
    node_keys,
    recognised_nodes,
    remembered_nodes,
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


def test_a_fingerprint_is_of_edges_and_training_nodes_in_any_order():
    known = fingerprint(GRAPH)
    assert len(known) == 16
    order = torch.randperm(GRAPH.edge_index.shape[1])
    assert fingerprint(changed(GRAPH, edge_index=GRAPH.edge_index[:, order])) == known
    assert fingerprint(changed(GRAPH, x=GRAPH.x + 1)) == known
    assert fingerprint(changed(GRAPH, edge_index=GRAPH.edge_index[:, 1:])) != known
    assert fingerprint(changed(GRAPH, edge_index=GRAPH.edge_index.flip(0)[:, : order.numel() - 1])) != known
    assert fingerprint(changed(GRAPH, train_mask=GRAPH.val_mask)) != known
    assert fingerprint(changed(GRAPH, num_nodes=151, x=None)) != known
    assert fingerprint(Data(x=GRAPH.x)) is None


def test_two_edges_that_swap_ends_are_another_graph():
    """(0, 1), (2, 3) and (0, 3), (2, 1) have the same sums of ends."""
    a = Data(edge_index=torch.tensor([[0, 2], [1, 3]]), num_nodes=4)
    b = Data(edge_index=torch.tensor([[0, 2], [3, 1]]), num_nodes=4)
    assert fingerprint(a) != fingerprint(b)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_keys_go_with_the_nodes(seed):
    order = torch.randperm(150, generator=torch.Generator().manual_seed(seed))
    place = torch.empty_like(order)
    place[order] = torch.arange(150)
    moved = Data(x=GRAPH.x[order], edge_index=place[GRAPH.edge_index], num_nodes=150)
    assert torch.equal(node_keys(moved), node_keys(GRAPH)[order])


def test_a_key_changes_with_features_and_neighbours_only():
    keys = node_keys(GRAPH)
    assert len(keys.unique()) == 150
    x = GRAPH.x.clone()
    x[7, 3] += 1e-6
    neighbours = GRAPH.edge_index[1][GRAPH.edge_index[0] == 7]
    other = node_keys(changed(GRAPH, x=x)) != keys
    assert set(other.nonzero().flatten().tolist()) == {7, *neighbours.tolist()}
    more = node_keys(changed(GRAPH, edge_index=torch.cat([GRAPH.edge_index, torch.tensor([[3, 149], [149, 3]])], 1)))
    assert set((more != keys).nonzero().flatten().tolist()) == {3, 149}


def test_features_may_be_sparse_or_in_another_precision():
    x = (GRAPH.x > 1).float()
    keys = node_keys(changed(GRAPH, x=x))
    assert torch.equal(node_keys(changed(GRAPH, x=x.to_sparse())), keys)
    assert torch.equal(node_keys(changed(GRAPH, x=x.to_sparse_csr())), keys)
    assert torch.equal(node_keys(changed(GRAPH, x=x.double())), keys)
    assert torch.equal(node_keys(changed(GRAPH, x=-0.0 * x + x)), keys)


def test_keys_are_the_same_in_every_version():
    """They are in saved files."""
    graph = Data(x=torch.tensor([[1.0, 0.0], [0.5, -2.0]]), edge_index=torch.tensor([[0], [1]]), num_nodes=2)
    assert node_keys(graph).tolist() == KEYS
    assert fingerprint(graph) == FINGERPRINT


def test_without_features_there_are_no_keys():
    assert node_keys(Data(edge_index=GRAPH.edge_index, num_nodes=150)) is None


def test_an_edge_that_is_repeated_in_one_direction_has_its_reverse_all_the_same():
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    assert is_undirected(edges)
    assert is_undirected(torch.cat([edges, edges[:, :1]], 1))
    assert not is_undirected(edges[:, :3])
    assert is_undirected(edges[:, :0])


def recognised(then: list[int], train: list[int], now: list[int]) -> tuple[list[int], list[int]]:
    """Recognised and unclear nodes, for keys of the nodes at the fit, its training nodes, and the keys now."""
    mask = torch.zeros(len(then), dtype=torch.bool)
    mask[train] = True
    masks = recognised_nodes(torch.tensor(now), remembered_nodes(torch.tensor(then), mask))
    return masks[0].nonzero().flatten().tolist(), masks[1].nonzero().flatten().tolist()


def test_a_key_of_training_nodes_alone_is_recognised_anywhere():
    assert recognised([7, 8, 9, 9], [0, 2, 3], [9, 6, 7, 8, 9]) == ([0, 2, 4], [])
    assert recognised([7, 8], [0], [1, 2, 3]) == ([], [])


def test_a_shared_key_is_decided_by_numbers_where_all_stand_as_they_stood():
    then, train = [7, 8, 8, 9], [0, 1]
    assert recognised(then, train, then) == ([0, 1], [])
    assert recognised(then, train, [*then, 8, 5]) == ([0, 1], [])  # later nodes, one of the same content
    assert recognised(then, train, [6, 8, 8, 9]) == ([1], [])  # node 0 has changed: it is like any other
    assert recognised(then, train, [8, 8, 7, 9]) == ([2], [0, 1])  # another order
    assert recognised(then, train, [8, 9]) == ([], [0])  # a part


def test_more_nodes_with_the_key_of_a_training_node_than_there_were_are_told_apart_by_number():
    assert recognised([7, 8], [0], [7, 8, 7]) == ([0], [])
    assert recognised([7, 8], [0], [8, 7, 7]) == ([], [1, 2])


def test_keys_without_numbers_are_recognised_unless_shared():
    """Files of 0.2 before numbers were kept."""
    keys = torch.tensor([5, 7])
    assert recognised_nodes(torch.tensor([7, 6, 5]), keys)[0].tolist() == [True, False, True]
    masks = recognised_nodes(torch.tensor([7, 7, 5]), keys)
    assert masks[0].tolist() == [False, False, True]
    assert masks[1].tolist() == [True, True, False]


def test_tensors_made_in_inference_mode_are_noticed_when_they_change():
    with torch.inference_mode():
        data = path()
        data.edge_index, data.train_mask, x = data.edge_index.clone(), data.train_mask.clone(), torch.eye(5)
        facts = structure(data)
        assert structure(data) is facts
        data.train_mask[3] = True
        assert structure(data).hops.tolist() == [0, 1, 1, 0, -1]
        data.edge_index[:, 4:] = 0
        assert structure(data).degree.tolist() == [1, 2, 1, 0, 0]
        data.x = x
        keys = node_keys(data)
        x[0] = 2
        assert not torch.equal(node_keys(data), keys)


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
