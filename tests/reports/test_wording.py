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
    assert "brings the calibration error from" in text
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
    worse = {**results, "methods": {"none": results["methods"]["ts"], "sharp": results["methods"]["sharp"]}}
    assert "No method did" in [a.answer for a in answers(worse)]
    assert "No calibrator tried makes it better" in verdict(worse)


def test_the_best_method_has_the_smallest_error(results):
    best = best_name(results["methods"])
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
    assert "brings the calibration error" not in text


def test_where_nothing_helped_the_certainty_is_that_of_the_model_as_it_was(results):
    worse = {**results, "methods": {"none": results["methods"]["ts"], "sharp": results["methods"]["sharp"]}}
    assert kept_name(worse["methods"]) == "none"
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
    assert place_text({"hops": -1, "degree": 0, "agreement": 1.0}) == "no training node in reach; no neighbours"
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
