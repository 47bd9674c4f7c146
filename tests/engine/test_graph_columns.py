"""The eight features of a node, one by one."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from conftest import random_graph
from graphcal.engine.graph_columns import WIDEST, FactUnits, log_opinion, node_features, walk_means, walk_sums
from graphcal.graphs import structure
from small_outputs import linear_outputs, neighbours


@pytest.fixture(scope="module")
def out():
    graph = random_graph(nodes=200, train=20, val=100)
    graph.edge_index = graph.edge_index[:, (graph.edge_index != 0).all(0)]  # node 0 has no neighbour left
    return linear_outputs(graph)


def test_features_node_by_node(out):
    graph, probs, pred = structure(out.graph), out.logits.softmax(-1), out.pred
    conf, features = probs.max(-1).values, node_features(out)

    def share(i, own):
        js = neighbours(out, i) or [i]
        return sum(float(pred[j] == own) for j in js) / len(js)

    for i in (1, 17, 60, 123):
        js = neighbours(out, i) or [i]
        mean = probs[js].mean(0)
        expected = [
            float(graph.next_to_training[i]),
            share(i, pred[i]),
            sum(share(j, pred[i]) for j in js) / len(js),
            float(torch.tensor(1.0 + len(neighbours(out, i))).log()),
            float(mean[pred[i]]),
            float(conf[i] - conf[js].mean()),
            float(-(mean * mean.log()).sum()),
            float(out.logits[i].norm()),
        ]
        torch.testing.assert_close(features[i], torch.tensor(expected, dtype=torch.double), atol=1e-6, rtol=1e-6)


def test_an_isolated_node_is_its_own_neighbourhood(out):
    agree, agree_2hop, log_degree, support, conf_gap = node_features(out)[0, 1:6].tolist()
    assert (agree, agree_2hop, log_degree, conf_gap) == (1.0, 1.0, 0.0, 0.0)
    assert support == pytest.approx(float(out.logits[0].softmax(-1).max()))


def test_walks_of_length_two_do_not_come_back():
    """A triangle 0, 1, 2 with a tail 2 - 3: from 3 the walks lead to 0 and 1, never to 3 itself."""
    edges = torch.tensor([[0, 1, 0, 2, 1, 2, 2, 3], [1, 0, 2, 0, 2, 1, 3, 2]])
    graph = structure(Data(edge_index=edges, num_nodes=4))
    values = torch.tensor([[1.0], [10.0], [100.0], [1000.0]], dtype=torch.double)
    one, two = walk_sums(graph, values)
    assert one.flatten().tolist() == [110, 101, 1011, 100]
    assert two.flatten().tolist() == [100 + 10 + 1000, 100 + 1 + 1000, 10 + 1, 1 + 10]
    mean_one, mean_two = walk_means(graph, values)
    assert mean_one[3].item() == 100
    assert mean_two[3].item() == 5.5


def test_an_opinion_of_nobody_points_nowhere():
    probs = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.0, 0.0]])
    found = log_opinion(probs)
    assert found[1].tolist() == [0, 0, 0]
    assert found.sum(-1).abs().max() < 1e-6
    assert float(found[0, 0] - found[0, 1]) == pytest.approx(0.6931, abs=1e-4)


def test_a_one_way_edge_does_not_come_back():
    graph = structure(Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3))
    assert graph.returning.tolist() == [0, 0, 0]
    _, two = walk_sums(graph, torch.eye(3, dtype=torch.double))
    assert two[0].tolist() == [0, 0, 1]


def test_facts_are_clamped_to_the_range_that_was_seen():
    """Beyond the largest and the smallest fact of the fit nothing changes; no range is wider than WIDEST."""
    facts = torch.tensor(
        [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [torch.nan, 100.0]] + [[1.0, 0.0]] * 96, dtype=torch.double
    )
    units = FactUnits.of(facts)
    far = units(torch.tensor([[-50.0, -50.0], [50.0, 1e6]], dtype=torch.double))
    seen = units(facts)
    assert far[:, 0].tolist() == [float(seen[0, 0]), float(seen[2, 0])]
    assert far[:, 1].tolist() == [float(seen[0, 1]), WIDEST]
    assert float(seen[3, 0]) == 0.0  # unknown: average
    between = units(torch.tensor([[1.05, 0.0]], dtype=torch.double))
    assert float(seen[1, 0]) < float(between[0, 0]) < float(seen[2, 0])
