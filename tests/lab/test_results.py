"""What a run found: one verdict, one ECE, explanations, a recommendation."""

import json

import pytest

import graphcal
from conftest import random_graph
from graphcal import reports


@pytest.fixture(scope="module")
def results():
    graph = random_graph(nodes=400, train=60, val=120)
    return graphcal.lab.run(graph, seeds=[0, 1], training=graphcal.lab.Training(epochs=20, hidden_channels=8))


def test_an_ece_has_one_value_in_the_record(results):
    for method in results.record["methods"].values():
        assert method["binnings"][method["bins"]]["ece"] == method["ece"]["mean"]
        assert method["binnings"][method["bins"]]["ece_floor"] == method["ece_floor"]["mean"]


def test_the_verdict_is_in_the_record_once_and_is_that_of_the_reports(results, tmp_path):
    assert results.verdict == reports.verdict(results.record)
    text = json.dumps(results.record)
    assert text.count(json.dumps(results.verdict)) == 1
    page = results.save(tmp_path)
    assert page.read_text(encoding="utf-8").count(results.verdict) == 1
    saved = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert saved.pop("files").keys() == {"calibrator.safetensors", "calibrated.parquet"}
    assert saved == json.loads(text)


def test_the_nodes_that_changed_most_are_explained(results):
    changed = results.record["methods"]["scar"]["changed"]
    assert changed
    for node in changed:
        assert node["explanation"]["sentence"].startswith(f"Node {node['node']} is class ")
    assert "changed" not in results.record["methods"]["none"]


def test_the_chosen_method_has_the_least_held_out_loss_or_keeps_predictions_within_its_error(results):
    held_out_nll = results.record["choice"]["held_out_nll"]
    best = min(held_out_nll, key=held_out_nll.get)
    assert results.chosen_method == best or results.chosen_method != "graph-scaling"
    assert set(held_out_nll) == set(results.record["methods"])
    assert results.record["choice"]["reason"] == results.choice.reason
    assert f"{held_out_nll[results.chosen_method]:.3f}" in results.choice.reason
