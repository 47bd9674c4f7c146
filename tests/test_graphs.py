import torch
from torch_geometric.data import Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from graphcal.graphs import neighbour_agreement, structure

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
