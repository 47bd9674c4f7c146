"""What is computed for the page: pooled bins, slices, changed nodes, the paired difference, advice."""

import json

import pytest
import torch
from sample_results import sample_results

from conftest import random_graph
from graphcal import metrics
from graphcal.reports import report_data


@pytest.fixture(scope="module")
def results():
    return sample_results()


def test_it_is_plain_json(results):
    for method in results["methods"].values():
        assert json.loads(json.dumps(method["measurement"], allow_nan=False)) == method["measurement"]


def test_every_binning_states_its_convention_and_counts_every_node(results):
    found = results["methods"]["ts"]["measurement"]
    assert set(found["binnings"]) == {f"{n} equal-width" for n in (10, 15, 20, 30)} | {"20 equal-mass"}
    for name, bins in found["binnings"].items():
        assert bins["convention"].startswith(name)
        assert sum(bins["count"]) == pytest.approx(found["nodes"], abs=0.01)


def test_changed_nodes_are_those_that_moved_most(results):
    changed = results["methods"]["scar"]["measurement"]["changed"]
    moves = [abs(n["after"] - n["before"]) for n in changed]
    assert moves == sorted(moves, reverse=True)
    assert all("training node" in n["why"] and "neighbour" in n["why"] for n in changed)
    assert "changed" not in results["methods"]["none"]["measurement"]


def test_the_paired_difference_is_there(results):
    against = results["methods"]["ts"]["measurement"]["against"]
    expected = results["methods"]["ts"]["ece"]["mean"] - results["methods"]["none"]["ece"]["mean"]
    assert against["ece"]["difference"] == pytest.approx(expected)
    assert against["ece"]["high"] < 0
    assert against["ece"]["p"] < 0.01


def test_histograms_share_out_all_nodes(results):
    h = results["methods"]["none"]["measurement"]["histogram"]
    assert sum(h["right"]) + sum(h["wrong"]) == pytest.approx(1, abs=1e-3)
    assert sum(h["right"]) == pytest.approx(results["methods"]["none"]["accuracy"]["mean"], abs=1e-3)


def test_advice_fits_the_method(results):
    assert results["methods"]["none"]["measurement"]["advice"].startswith("A better method would help")
    assert not results["methods"]["ts"]["measurement"]["advice"].startswith("A better method")


def test_an_unusual_number_of_bins_is_offered_and_chosen():
    graph = random_graph(nodes=300, classes=4)
    log_probs = torch.randn(300, 4, generator=torch.Generator().manual_seed(0)).log_softmax(1)
    found = report_data([log_probs], graph.y, graph.test_mask, bins=12)
    assert found["bins"] == "12 equal-width"
    chosen = found["binnings"]["12 equal-width"]["ece"]
    assert chosen == pytest.approx(metrics.ece(log_probs[graph.test_mask], graph.y[graph.test_mask], 12))
