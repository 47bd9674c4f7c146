"""The main job: on one's own graph, blind to test labels."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import graphcal
import graphcal.reports
from conftest import random_graph
from graphcal.lab.training import published
from graphcal.metrics import reference_summary


def test_run_on_ones_own_graph_and_test_labels_never_choose():
    graph = random_graph(nodes=400, train=60, val=120)
    training = graphcal.lab.Training(epochs=20, hidden_channels=8)
    results = graphcal.lab.run(graph, seeds=[0, 1], training=training)
    other = graph.clone()
    other.y = torch.where(graph.test_mask, (graph.y + 1) % 4, graph.y)
    again = graphcal.lab.run(other, seeds=[0, 1], training=training)
    for name in ("none", "ts", "scar", "graph-scaling-keep", "graph-scaling"):
        one, two = results.record["methods"][name], again.record["methods"][name]
        assert one["fitted"] == two["fitted"]
        assert one["ece_floor"] == two["ece_floor"]  # the confidences are the same
        assert one["accuracy"] != two["accuracy"]
    assert results.record["choice"] == again.record["choice"]
    assert results.chosen_method == again.chosen_method
    assert results.chosen_method in results._repr_html_()


def promise_in(reference):
    return {"promise": reference["promise"]} if "promise" in reference else {}


def calibrated_probabilities(path):
    table = pq.read_table(path)
    names = [name for name in table.column_names if name.startswith("calibrated_") and name[-1].isdigit()]
    return torch.tensor(np.stack([table[name].to_numpy() for name in names], 1))


@pytest.mark.slow_cases("calibrators0", "calibrators1", "calibrators2")
@pytest.mark.parametrize(
    "calibrators", [["ts", "graph-scaling"], ["graph-scaling", "ts"], ["ts", "graph-scaling", "isotonic"], ["ts"]]
)
def test_everything_saved_and_shown_is_of_the_chosen_method(calibrators, tmp_path):
    graph, training = random_graph(nodes=600, train=60, val=200), graphcal.lab.Training(epochs=20, hidden_channels=8)
    results = graphcal.lab.run(graph, calibrators=calibrators, seeds=[0], training=training)
    method = results.chosen_method
    assert method == ("ts" if len(calibrators) == 1 else "graph-scaling")
    results.save(tmp_path)
    restored = graphcal.restore(tmp_path / "calibrator.safetensors")
    recipe = graphcal.CALIBRATORS[method]()
    settings = published("cagcn", "gcn", None, 20)
    out = graphcal.lab.train(graph, settings.backbone, training, [0])[0].outputs
    assert type(restored) is type(recipe.fit(out, on=graph.val_mask))
    expected = restored(out).exp().double()
    assert torch.allclose(calibrated_probabilities(tmp_path / "calibrated.parquet").double(), expected, atol=1e-6)

    record, title = results.record, results.record["methods"][method]["title"]
    assert record["map"]["after"] == method
    assert title in results.verdict
    assert title in results.decision
    assert dict(results.summary)["Chosen method"].startswith(f"{method} (")
    card = graphcal.reports.model_card(record)
    assert f"# gcn on your graph, {title}" in card
    assert results.decision in card
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    start = page.index('id="decider"')
    decider = page[start : page.index("</select>", start)]
    assert f'value="{method}" selected' in decider
    assert results.reference == {**reference_summary(restored(out)[~graph.train_mask]), **promise_in(results.reference)}


def test_none_does_not_count_as_a_calibrator_to_choose_from():
    graph, training = random_graph(nodes=300, train=60, val=100), graphcal.lab.Training(epochs=5, hidden_channels=8)
    results = graphcal.lab.run(graph, calibrators=["none", "histogram"], seeds=[0], training=training)
    assert results.chosen_method == "histogram"
