"""One verdict: direction, repair and certainty, without contradiction."""

import copy

import pytest
import torch

from graphcal.metrics import label_limit
from graphcal.reports import advice, verdict
from graphcal.reports.wording import (
    best_name,
    choice_note,
    kept_name,
    label,
    place_text,
    review_text,
    slice_text,
    summary,
)
from sample_results import sample_results


@pytest.fixture(scope="module")
def results():
    return sample_results()


def test_the_verdict_is_one_sentence_with_direction_repair_and_interval(results):
    text, (low, high) = verdict(results), results["methods"]["scar"]["ece_interval"]
    gap = results["methods"]["none"]["signed_gap"]["mean"]
    assert f"under-confident by {100 * gap:.1f} points" in text
    assert f"{100 * low:.1f} to {100 * high:.1f}" in text
    assert text.count(". ") == 0


def test_an_over_confident_model_is_called_so(results):
    only = {**results, "methods": {"none": results["methods"]["sharp"]}}
    assert "over-confident by" in verdict(only)
    assert "over-confident by" in dict(summary(only))["Miscalibrated"]


def test_a_calibrated_model_is_not_accused(results):
    only = {**results, "methods": {"none": results["methods"]["ts"]}}
    assert "not measurably miscalibrated" in verdict(only)
    assert "Miscalibrated" not in dict(summary(only))


def test_no_method_is_praised_when_none_helps(results):
    methods = {"none": results["methods"]["ts"], "sharp": results["methods"]["sharp"]}
    worse = {**results, "methods": methods, "chosen_method": "sharp"}
    assert kept_name(worse) == "none"
    assert "sharp does not lower its calibration error" in verdict(worse)


def test_without_a_chosen_method_the_best_has_the_smallest_error(results):
    best = best_name({"methods": results["methods"]})
    assert results["methods"][best]["ece"]["mean"] == min(
        m["ece"]["mean"] for k, m in results["methods"].items() if k != "none"
    )


def test_what_needs_no_repair_is_not_called_repaired(results):
    """Not measurably off before, a smaller ECE after: the verdict claims no repair."""
    calm = {**results, "methods": {"none": results["methods"]["ts"], "other": copy.deepcopy(results["methods"]["ts"])}}
    calm["methods"]["other"]["ece"]["mean"] *= 0.9
    assert "nothing to repair" in verdict(calm)
    assert "calibration error from" not in verdict(calm)


def test_the_summary_is_of_the_chosen_method(results):
    rows = dict(summary(results))
    backtest = results["methods"]["scar"]["decision"]
    assert rows["Chosen method"].startswith("scar (")
    assert rows["Without review"] == review_text(backtest, "node")
    assert (
        f"{backtest['approved'] or backtest['next_target'][1]:,} of {backtest['nodes']:,} test nodes"
        in rows["Without review"]
    )


def test_a_larger_ece_than_another_method_is_explained(results):
    methods = results["methods"]
    order = sorted(methods, key=lambda name: methods[name]["ece"]["mean"])
    assert choice_note({**results, "chosen_method": order[0]}) == ""
    note = choice_note({**results, "chosen_method": order[1]})
    assert label(order[0], methods[order[0]]) in note
    assert "NLL" in note


def test_a_method_is_called_by_its_title_else_its_name(results):
    assert label("ts", results["methods"]["ts"]) == "Temperature scaling"
    assert label("mine", {}) == "mine"
    assert label("none", {}) == "Uncalibrated"


def test_places_and_groups_in_words():
    assert place_text({"hops": 2, "degree": 4, "agreement": 0.5}) == (
        "2 hops from the nearest training node; 2 of 4 neighbours predicted alike"
    )
    alone = {"hops": -1, "degree": 0, "agreement": 1.0}
    assert place_text(alone) == "no training node in reach; no neighbours"
    assert place_text(alone, training=False) == "no neighbours"
    worst = {"by": "degree", "group": "1", "nodes": 72, "confidence": 0.61, "accuracy": 0.38}
    assert slice_text(worst) == "nodes of degree 1, confidence 61 %, accuracy 38 % (72 nodes)"
    lonely = {**worst, "by": "neighbours that agree", "group": "none", "nodes": 1}
    assert slice_text(lonely, "row") == "rows with no agreeing neighbour, confidence 61 %, accuracy 38 % (1 row)"


def predictions(nodes):
    """Calibrated log-probabilities."""
    return (2 * torch.randn(nodes, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).log_softmax(1)


def test_advice_names_what_helps():
    limit = label_limit(predictions(1000), 500)
    assert advice(limit, (0.08, 0.12)).startswith("A better method would help")
    assert "2,000 would halve that" in advice(label_limit(predictions(10_000), 500), (0.0, 0.02))
    assert advice(label_limit(predictions(300), 5000), (0.0, 0.05)).startswith("More test nodes would tell")


def method(error, interval, p=0.5, **more):
    """What a method's record says of its calibration error."""
    return {"ece": {"mean": error + 0.02}, "true_error": error, "ece_interval": interval, "p": p, **more}


OFF = method(0.113, [0.09, 0.136], 0.001, signed_gap={"mean": 0.11}, confidence={"mean": 0.6})


def test_results_without_an_estimate_show_ece():
    old, new = ({**m} for m in (OFF, method(0.004, [0.0, 0.029])))
    for m in (old, new):
        del m["true_error"]
    assert "from 13.3 to 2.4 points" in verdict({"methods": {"none": old, "ts": new}})
    assert "from 11.3 to 0.4 points (95 % interval 0.0 to 2.9)" in verdict(
        {"methods": {"none": OFF, "ts": method(0.004, [0.0, 0.029])}}
    )


def test_the_verdict_speaks_of_the_chosen_method_not_of_the_smallest_error_on_test_nodes(results):
    smallest = best_name({"methods": results["methods"]})
    for other in (name for name in results["methods"] if name not in ("none", smallest)):
        record = {**results, "chosen_method": other}
        assert best_name(record) == other != smallest
        assert label(other, record["methods"][other]) in verdict(record)
