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
    "ece_classwise": metrics.ece_classwise,
    "ece_top_label": metrics.ece_top_label,
    "mce": metrics.mce,
    "smooth_ece": metrics.smooth_ece,
    "kde_ece": metrics.kde_ece,
    "overconfidence": metrics.overconfidence,
    "underconfidence": metrics.underconfidence,
    "nll": metrics.nll,
    "brier": metrics.brier,
    "auroc": metrics.auroc,
    "aurc": metrics.aurc,
    "eaurc": metrics.eaurc,
    "coverage_at_5": metrics.coverage_at,
    "coverage_interval": metrics.coverage_interval,
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
    binning = plain["binnings"][plain["bins"]]
    assert binning["convention"] == "20 equal-width bins (lo, hi], 0 and 1 included"
    assert plain["ece_excess"]["mean"] == pytest.approx(plain["ece"]["mean"] - plain["ece_floor"]["mean"])
    assert sum(binning["count"]) == plain["nodes"]
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
    assert f"{100 * measured[3].ece_floor:.2f} %" in html
    assert "95 % interval" in html


@pytest.fixture(scope="module")
def seeds():
    graph = random_graph(nodes=900, classes=5, train=60, val=200)
    y = predictions(900)[1]
    before = [predictions(900, scale=s)[0] for s in (0.5, 0.6)]
    after = [predictions(900, scale=s)[0] for s in (0.95, 1.05)]
    return graph, y, before, after


def test_several_seeds_give_means_and_keep_their_own(seeds):
    graph, y, before, _ = seeds
    m = metrics.evaluate(before, y, graph.test_mask, graph, draws=100, thorough=False)
    rows, labels = [lp[graph.test_mask] for lp in before], y[graph.test_mask]
    assert [s.ece for s in m.by_seed] == [metrics.ece(lp, labels) for lp in rows]
    assert m.ece == pytest.approx(sum(s.ece for s in m.by_seed) / 2, abs=1e-15)
    assert m.nodes == len(labels)
    assert m.ece_interval == metrics.ece_interval(rows, labels, draws=100)
    assert m.rejected == 2
    plain = m.to_dict()
    assert plain["seeds"] == 2
    assert plain["nll"]["values"] == [s.nll for s in m.by_seed]
    assert "smooth_ece" not in plain


def test_every_binning_states_its_convention_and_counts_every_node(seeds):
    graph, y, before, _ = seeds
    plain = metrics.evaluate(before, y, graph.test_mask, draws=20, thorough=False, bins=12).to_dict()
    names = {f"{n} equal-width" for n in (10, 12, 15, 20, 30)} | {"20 equal-mass"}
    assert set(plain["binnings"]) == names
    assert plain["bins"] == "12 equal-width"
    for name, bins in plain["binnings"].items():
        assert bins["convention"].startswith(name)
        assert sum(bins["count"]) == pytest.approx(plain["nodes"], abs=0.01)
    h = plain["histogram"]
    assert sum(h["right"]) + sum(h["wrong"]) == pytest.approx(1, abs=1e-3)
    assert sum(h["right"]) == pytest.approx(plain["accuracy"]["mean"], abs=1e-3)


def test_with_the_predictions_before_the_paired_difference_and_the_changed_nodes_are_there(seeds):
    graph, y, before, after = seeds
    m = metrics.evaluate(after, y, graph.test_mask, graph, draws=200, before=before, thorough=False)
    old = metrics.evaluate(before, y, graph.test_mask, draws=20, thorough=False)
    assert m.against["ece"].difference == pytest.approx(m.ece - old.ece)
    assert m.against["ece"].high < 0
    assert m.against["ece"].p < 0.02
    assert m.changed
    assert m.limit.labels == 200
    json.dumps(m.to_dict(), allow_nan=False)


def test_the_examples_in_the_docstrings_run():
    import doctest

    import graphcal.metrics.measurement as module

    assert doctest.testmod(module).failed == 0
