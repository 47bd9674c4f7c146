"""Receptive fields: what a pass computes, and what its levels share."""

import numpy as np
import scipy.sparse as sp
import torch

from graphcal.lab.engine.receptive import GraphInput, full_graph, receptive_fields

CPU = torch.device("cpu")


def chains(*lengths: int, loops: bool = True) -> sp.csr_matrix:
    """Paths of these lengths, side by side."""
    nodes = sum(lengths)
    ends = np.cumsum(lengths)
    steps = [i for i in range(nodes - 1) if i + 1 not in ends]
    one_way = sp.csr_matrix((np.ones(len(steps)), (steps, [i + 1 for i in steps])), (nodes, nodes))
    return (one_way + one_way.T + (sp.eye(nodes) if loops else 0)).tocsr()


def graph(operator: sp.csr_matrix, input_dropout: float) -> GraphInput:
    return GraphInput(operator, sp.csr_matrix(np.eye(operator.shape[0])), CPU, input_dropout)


def sizes(field) -> list[int]:
    return [len(nodes) for nodes in field.nodes]


def test_a_deep_field_ends_where_nothing_more_can_be_reached():
    """Node 0 of a path of 5: after 4 steps the path is all there is, and the other component is never read."""
    learn, check = receptive_fields(graph(chains(5, 20), 0.5), np.array([0]), np.array([7]), depth=8)
    assert sizes(learn) == [5, 5, 5, 5, 5, 4, 3, 2, 1]
    assert len({id(hop) for hop in learn.hops[:4]}) == 1  # one operator for all closed levels
    assert learn.self_index[0] is None
    assert learn.self_index[4] is not None
    assert set(check.nodes[0].tolist()) == set(range(5, 16))  # 8 steps to the right, 2 to the left end


def test_a_level_that_is_nearly_the_graph_becomes_the_graph_in_a_deep_field_only():
    path = chains(20)
    middle = np.array([10])
    deep, _ = receptive_fields(graph(path, 0.5), middle, middle, depth=12)
    assert sizes(deep)[:4] == [20, 20, 20, 20]
    assert 18 not in sizes(deep)  # nine steps would reach 19 of 20
    shallow, _ = receptive_fields(graph(path, 0.5), np.arange(1, 19), middle, depth=2)
    assert sizes(shallow) == [20, 20, 18]


def test_the_validation_field_begins_with_the_training_field_where_products_are_shared():
    for depth in (2, 6):
        learn, check = receptive_fields(graph(chains(9, 9, 4), 0.0), np.array([0, 10]), np.array([5, 20]), depth)
        assert check.fills_cache
        assert check.first_products is learn.first_products
        for level in (0, 1):
            mine = learn.nodes[level].tolist()
            assert check.nodes[level].tolist()[: len(mine)] == mine


def test_the_full_graph_is_every_node_at_every_level():
    field = full_graph(graph(chains(3, 4), 0.0), depth=2)
    assert sizes(field) == [7, 7, 7]
    assert field.output_nodes.tolist() == list(range(7))
    assert torch.equal(field.select_self(torch.ones(1, 7, 2), 0), torch.ones(1, 7, 2))


def test_without_hops_the_validation_field_holds_both_sets_and_outputs_its_own():
    learn, check = receptive_fields(graph(chains(6), 0.0), np.array([0, 2]), np.array([4]), depth=0)
    assert check.nodes[0].tolist() == [0, 2, 4]
    assert learn.output_nodes.tolist() == [0, 2]
    assert check.output_nodes.tolist() == [4]
    assert check.select_output(torch.arange(3.0).view(1, 3, 1)).flatten().tolist() == [2]
