"""The eight features of a node, one by one."""

from __future__ import annotations

import pytest
import torch

from conftest import random_graph
from graphcal.engine.node_features import node_features
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
