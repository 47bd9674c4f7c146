"""One verdict: direction, repair and certainty, without contradiction."""

import copy

import pytest
import torch

from graphcal.metrics import label_limit
from graphcal.reports import advice, answers, verdict
from graphcal.reports.wording import best_name, direction, kept_name, label, place_text, slice_text
from sample_results import sample_results


@pytest.fixture(scope="module")
def results():
    return sample_results()


def test_a_newcomer_reads_off_the_four_answers(results):
    found = {a.question: a for a in answers(results)}
    assert found["Was it miscalibrated?"].answer == "Yes"
    assert found["In which direction?"].answer == "Under-confident"
    assert found["What fixed it?"].answer in ("Temperature scaling", "SCAR")
    assert "95 % interval" in found["How sure are we?"].detail


def test_the_verdict_says_direction_repair_and_certainty(results):
    text = verdict(results)
    gap = results["methods"]["none"]["signed_gap"]["mean"]
    assert f"under-confident by {100 * gap:.1f} points" in text
    assert "brings the true calibration error from" in text
    assert "certainty" in text


def test_an_over_confident_model_is_called_so(results):
    assert direction(results["methods"]["sharp"])[0] == "Over-confident"
    only = {**results, "methods": {"none": results["methods"]["sharp"]}}
    assert "over-confident by" in verdict(only)


def test_a_calibrated_model_is_not_accused(results):
    only = {**results, "methods": {"none": results["methods"]["ts"]}}
    assert answers(only)[0].answer == "Not measurably"
    assert "not measurably miscalibrated" in verdict(only)


def test_no_method_is_praised_when_none_helps(results):
    methods = {"none": results["methods"]["ts"], "sharp": results["methods"]["sharp"]}
    worse = {**results, "methods": methods, "chosen_method": "sharp"}
    assert "It did not" in [a.answer for a in answers(worse)]
    assert "sharp does not lower its calibration error" in verdict(worse)


def test_without_a_chosen_method_the_best_has_the_smallest_error(results):
    best = best_name({"methods": results["methods"]})
    assert results["methods"][best]["ece"]["mean"] == min(
        m["ece"]["mean"] for k, m in results["methods"].items() if k != "none"
    )


def test_what_needs_no_repair_is_not_called_repaired(results):
    """Not measurably off before, a smaller ECE after: neither verdict nor answers claim a repair."""
    calm = {**results, "methods": {"none": results["methods"]["ts"], "other": copy.deepcopy(results["methods"]["ts"])}}
    calm["methods"]["other"]["ece"]["mean"] *= 0.9
    text, found = verdict(calm), {a.question: a.answer for a in answers(calm)}
    assert found["Was it miscalibrated?"] == "Not measurably"
    assert found["What fixed it?"] == "Nothing to fix"
    assert "nothing to repair" in text
    assert "calibration error from" not in text


def test_where_nothing_helped_the_certainty_is_that_of_the_model_as_it_was(results):
    worse = {**results, "methods": {"none": results["methods"]["ts"], "sharp": results["methods"]["sharp"]}}
    assert kept_name(worse) == "none"
    sure = next(a for a in answers(worse) if a.question == "How sure are we?")
    low, high = results["methods"]["ts"]["ece_interval"]
    assert sure.answer == f"{100 * low:.1f} to {100 * high:.1f} points"
    assert "after repair" not in sure.detail


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
    assert slice_text(None) is None
    worst = {"by": "degree", "group": "1", "nodes": 72, "confidence": 0.61, "accuracy": 0.38}
    assert slice_text(worst) == "degree: 1 (72 nodes, says 61 %, right 38 %)"


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


@pytest.mark.parametrize(
    ("after", "said", "not_said"),
    [
        (method(0.002, [0.0, 0.008]), "repairs all of it: with 97.5 % certainty the true error is below 0.8 points", "left"),
        (method(0.004, [0.0, 0.029]), "told from sampling noise; with 97.5 % certainty the true error is below 2.9", "all"),
        (method(0.023, [0.009, 0.04]), "noise does not explain: 2.3 (95 % interval 0.9 to 4.0) points", "all"),
        (method(0.0, [0.0, 0.008], p=0.01), "A small error remains", "all of it"),
    ],
)  # fmt: skip
def test_all_is_repaired_only_where_the_interval_says_so(after, said, not_said):
    text = verdict({"methods": {"none": OFF, "ts": after}})
    assert f"true calibration error from 11.3 to {100 * after['true_error']:.1f} points" in text
    assert said in text
    assert not_said not in text


def test_the_worst_group_enters_the_verdict():
    worst = {"by": "predicted class", "group": "class 3", "nodes": 1140, "confidence": 0.61, "accuracy": 0.74,
             "signed_gap": 0.13, "corrected_gap": 0.12}  # fmt: skip
    said = "Calibrated on average; class 3 is still 12.0 points under-confident (says 61 %, right 74 %, 1,140 nodes)."
    assert verdict({"methods": {"none": OFF, "ts": method(0.004, [0.0, 0.02], worst=worst)}}).endswith(said)
    far = {**worst, "by": "distance from training", "group": "3 hops", "corrected_gap": -0.1}
    said = "Worst group: nodes at distance 3 hops from the training set are still 10.0 points over-confident"
    assert said in verdict({"methods": {"none": OFF, "ts": method(0.03, [0.01, 0.05], worst=far)}})
    calm = {**method(0.0, [0.0, 0.02]), "worst": {**worst, "by": "degree", "group": "1"}}
    text = verdict({"methods": {"none": calm, "ts": {**calm, "ece": {"mean": 0.01}}}})
    assert "On average there is nothing to repair" in text
    assert "Calibrated on average; nodes of degree 1 are 12.0 points under-confident" in text
    assert "still" not in text


def test_results_without_an_estimate_show_ece_beside_its_floor():
    old, new = ({**m, "ece_floor": {"mean": 0.035}} for m in (OFF, method(0.004, [0.0, 0.029])))
    for m in (old, new):
        del m["true_error"]
    text = verdict({"methods": {"none": old, "ts": new}})
    assert (
        "brings the calibration error from 13.3 to 2.4 points, where a perfectly calibrated model would show 3.5"
        in text
    )


def test_the_verdict_speaks_of_the_chosen_method_not_of_the_smallest_error_on_test_nodes(results):
    smallest = best_name({"methods": results["methods"]})
    for other in (name for name in results["methods"] if name not in ("none", smallest)):
        record = {**results, "chosen_method": other}
        assert best_name(record) == other != smallest
        assert label(other, record["methods"][other]) in verdict(record)
