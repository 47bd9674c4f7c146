"""The page as text: self-contained, small, true to its numbers, and readable by a newcomer."""

import copy
import json
import re

import pytest
from sample_results import sample_results

import graphcal.reports
from graphcal.reports import build, combine, read_results, write
from graphcal.reports.verdict import answers, best_name, direction, verdict


@pytest.fixture(scope="module")
def results():
    return sample_results()


@pytest.fixture(scope="module")
def html(results):
    return build(results)


def test_the_page_is_small_and_needs_no_network(html):
    assert len(html.encode()) < 1_000_000
    without_data = re.sub(r'<script type="application/json".*?</script>', "", html, flags=re.DOTALL)
    addresses = set(re.findall(r"https?://[^\"'\s<>)]+", without_data))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name space, not an address
    assert not re.search(r"<(link|img|iframe)\b|\bsrc=|@import|url\(", without_data)


def test_a_newcomer_reads_off_the_four_answers(results, html):
    found = {a.question: a for a in answers(results)}
    assert found["Was it miscalibrated?"].answer == "Yes"
    assert found["In which direction?"].answer == "Under-confident"
    assert found["What fixed it?"].answer in ("TS", "SCAR")
    assert "95 % interval" in found["How sure are we?"].detail
    for a in found.values():
        assert a.question in html
        assert a.answer in html


def test_the_verdict_says_direction_repair_and_certainty(results):
    text = verdict(results)
    gap = results["methods"]["none"]["measurement"]["mean_gap"]
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


def test_the_table_holds_the_numbers(results, html):
    for name, method in results["methods"].items():
        row = re.search(rf'<tr data-method="{name}">(.*?)</tr>', html, flags=re.DOTALL)[1]
        assert f"{100 * method['ece']['mean']:.2f}" in row
        assert f"{method['nll']['mean']:.4f}" in row
        assert 'role="img" aria-label="ECE' in row


def test_embedded_data_is_the_measurement(results, html):
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, flags=re.DOTALL)[1])
    ours = results["methods"]["scar"]["measurement"]["binnings"]["20 equal-width"]
    assert data["methods"]["scar"]["binnings"]["20 equal-width"]["ece"] == ours["ece"]
    assert sum(ours["count"]) == pytest.approx(results["nodes"]["test"], abs=0.01)
    assert ours["ece"] == pytest.approx(results["methods"]["scar"]["ece"]["mean"])


def test_hostile_names_are_text(results):
    odd = copy.deepcopy(results)
    odd["dataset"] = "<script>alert(1)</script>"
    odd["methods"]["</script><b>"] = odd["methods"].pop("ts")
    page = build(odd)
    assert "<script>alert(1)" not in page
    assert "</script><b>" not in page


def test_results_without_pictures_still_make_a_page(results):
    bare = {"methods": {k: {"ece": m["ece"]} for k, m in results["methods"].items()}}
    page = build(bare)
    assert "Methods" in page
    assert "Confidence against accuracy" not in page


def test_infinite_scores_do_not_break_the_page(results):
    odd = copy.deepcopy(results)
    odd["methods"]["ts"]["nll"] = {"mean": float("inf"), "sd": float("nan")}
    page = build(odd)
    row = re.search(r'<tr data-method="ts">(.*?)</tr>', page, flags=re.DOTALL)[1]
    assert 'data-value="">–</td>' in row
    assert not re.search("NaN|Infinity", re.search(r'id="data">(.*?)</script>', page, flags=re.DOTALL)[1])


def test_results_that_are_none_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"results has no methods: .* got keys \['a'\]"):
        build({"a": 1})
    with pytest.raises(ValueError, match="no results at"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text("{nonsense")
    with pytest.raises(ValueError, match="is not JSON"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(ValueError, match="holds no results"):
        read_results(tmp_path)


def test_a_report_is_a_value(results, tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(results))
    shown = graphcal.report(tmp_path)
    assert shown.html == graphcal.report(results).html == build(results)
    assert shown.write(tmp_path / "deep" / "r.html").read_text(encoding="utf-8") == shown.html
    assert write(results, tmp_path / "s.html").exists()
    assert shown._repr_html_().startswith("<iframe srcdoc=")
    assert "<script" not in shown._repr_html_()


def test_runs_of_one_model_share_a_table_and_others_are_named_apart(results):
    more = {**results, "methods": {"gats": results["methods"]["scar"]}}
    assert list(combine([results, more])["methods"]) == ["none", "ts", "scar", "sharp", "gats"]
    other = {**results, "dataset": "cora"}
    assert "cora gcn: ts" in combine([results, other])["methods"]
    assert len(build(combine([results, other]))) < 1_000_000


def test_the_best_method_has_the_smallest_error(results):
    best = best_name(results["methods"])
    assert results["methods"][best]["ece"]["mean"] == min(
        m["ece"]["mean"] for k, m in results["methods"].items() if k != "none"
    )
