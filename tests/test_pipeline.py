"""The main job: on one's own graph, blind to test labels."""

import torch

import graphcal
from conftest import random_graph


def test_run_on_ones_own_graph_and_test_labels_never_choose():
    graph = random_graph(nodes=400, train=60, val=120)
    training = graphcal.Training(epochs=20, hidden_channels=8)
    results = graphcal.run(graph, seeds=[0, 1], training=training)
    other = graph.clone()
    other.y = torch.where(graph.test_mask, (graph.y + 1) % 4, graph.y)
    again = graphcal.run(other, seeds=[0, 1], training=training)
    for name in ("none", "ts", "scar", "graph-scaling-keep", "graph-scaling"):
        one, two = results.record["methods"][name], again.record["methods"][name]
        assert one["fitted"] == two["fitted"]
        assert one["ece_floor"] == two["ece_floor"]  # the confidences are the same
        assert one["accuracy"] != two["accuracy"]
    assert results.record["recommended"] == again.record["recommended"]
    assert results.verdict in results._repr_html_()
