import pytest
import torch

import graphcal
from conftest import random_graph
from graphcal.core import blinded
from graphcal.experiment import sentence


def record(none: float, **others: float) -> dict:
    methods = {name: {"ece_excess": {"mean": value}, "ece_floor": {"mean": 0.04}} for name, value in others.items()}
    return {
        "methods": {"none": {"ece_excess": {"mean": none}, "ece_floor": {"mean": 0.04}}, **methods},
        "nodes": {"test": 1000},
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (record(0.084, ts=0.02, scar=0.011), "SCAR repaired 7.3 of the 8.4 points that calibration can repair"),
        (record(0.084, ts=-0.001), "TS repaired all of the 8.4 points"),
        (record(0.002, ts=-0.001), "as well calibrated as 1,000 test nodes can show"),
        (record(0.03, ts=0.05), "No calibrator tried repaired any of the 3.0 points"),
        (record(0.03), "Calibration could repair 3.0 points"),
    ],
)
def test_the_sentence_says_what_happened(given, words):
    assert words in sentence(given)


def test_run_on_ones_own_graph_and_test_labels_never_choose():
    graph = random_graph(nodes=400, train=60, val=120)
    training = graphcal.Training(epochs=20, hidden_channels=8)
    results = graphcal.run(graph, seeds=[0, 1], training=training)
    other = graph.clone()
    other.y = torch.where(graph.test_mask, (graph.y + 1) % 4, graph.y)
    again = graphcal.run(other, seeds=[0, 1], training=training)
    for name in ("none", "ts", "scar", "graph-scar"):
        one, two = results.record["methods"][name], again.record["methods"][name]
        assert one["fitted"] == two["fitted"]
        assert one["ece_floor"] == two["ece_floor"]  # the confidences are the same
        assert one["accuracy"] != two["accuracy"]
    assert results.sentence in results._repr_html_()


def test_a_blinded_graph_has_no_test_label():
    graph = random_graph()
    blind = blinded(graph)
    assert (blind.y[graph.test_mask] == -1).all()
    assert "test_mask" not in blind
    seen = graph.train_mask | graph.val_mask
    assert torch.equal(blind.y[seen], graph.y[seen])
    assert (graph.y >= 0).all()
    assert "test_mask" in graph
    assert blind.edge_index is graph.edge_index
