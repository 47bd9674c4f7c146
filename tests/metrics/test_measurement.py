"""`evaluate` says everything, as the functions say it one by one."""

import json

import pytest
import torch
from known_truth import predictions

from conftest import random_graph
from graphcal import metrics

NAMES = {
    "accuracy": metrics.accuracy,
    "ece": metrics.ece,
    "ece_debiased": metrics.ece_debiased,
    "ece_classwise": metrics.classwise_ece,
    "ece_top_label": metrics.top_label_ece,
    "mce": metrics.mce,
    "smooth_ece": metrics.smooth_ece,
    "kde_ece": metrics.kde_ece,
    "overconfidence": metrics.overconfidence,
    "underconfidence": metrics.underconfidence,
    "nll": metrics.nll,
    "brier": metrics.brier,
    "auroc": metrics.auroc,
    "aurc": metrics.aurc,
}


@pytest.fixture(scope="module")
def measured():
    graph = random_graph(nodes=900, classes=5)
    log_probs, y = predictions(900, scale=0.6)
    return log_probs, y, graph, metrics.evaluate(log_probs, y, graph.test_mask, graph)


@pytest.mark.parametrize("name", NAMES)
def test_fields_are_the_functions(measured, name):
    log_probs, y, graph, m = measured
    assert getattr(m, name) == pytest.approx(NAMES[name](log_probs[graph.test_mask], y[graph.test_mask]))


def test_everything_fits_in_json(measured):
    plain = json.loads(json.dumps(measured[3].to_dict()))
    assert plain["binning"] == "20 equal-width bins (lo, hi], 0 and 1 included"
    assert plain["ece_excess"] == pytest.approx(plain["ece"] - plain["ece_floor"])
    assert sum(plain["reliability"]["count"]) == plain["nodes"]
    assert {s["by"] for s in plain["slices"]} >= {"degree", "predicted class", "distance from training"}


def test_an_under_confident_model_is_seen_as_one(measured):
    m = measured[3]
    assert m.signed_gap > 0.05
    assert m.underconfidence > m.overconfidence
    assert m.p < 0.01
    assert m.ece_interval[0] > 0
    assert m.ece_interval_blocks[0] > 0
    assert m.ece_floor_interval[0] < m.ece_floor < m.ece_floor_interval[1] < m.ece


def test_without_a_graph_there_are_no_slices():
    m = metrics.evaluate(*predictions(300))
    assert (m.slices, m.worst, m.degree_binned_error, m.ece_interval_blocks) == ((), None, None, None)


def test_unlabelled_nodes_outside_the_mask_do_not_matter():
    log_probs, y = predictions(300)
    mask = torch.arange(300) < 200
    hidden = y.masked_fill(~mask, -1)
    assert metrics.evaluate(log_probs, hidden, mask).ece == metrics.evaluate(log_probs, y, mask).ece


def test_a_notebook_shows_the_floor_and_the_certainty(measured):
    html = measured[3]._repr_html_()
    assert "a perfect model would show" in html
    assert "95 % interval" in html
