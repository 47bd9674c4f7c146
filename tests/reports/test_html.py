"""The page as text: self-contained, small, true to its numbers, and readable by a newcomer."""

import copy
import json
import re

import pytest

from graphcal.metrics.names import METRICS
from graphcal.reports import build
from sample_results import sample_results


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


def test_the_table_holds_the_numbers(results, html):
    for name, method in results["methods"].items():
        row = re.search(rf'<tr data-method="{name}">(.*?)</tr>', html, flags=re.DOTALL)[1]
        assert f"{100 * method['ece']['mean']:.2f}" in row
        assert f"{method['nll']['mean']:.4f}" in row
        assert 'role="img" aria-label="ECE' in row


def test_a_table_of_predictions_has_no_model_no_seeds_and_no_spread(results):
    """One set of predictions, of a model nobody trained here and whose training nodes are not known."""
    methods = copy.deepcopy(results["methods"])
    for method in methods.values():
        for value in method.values():
            if isinstance(value, dict) and len(value.get("values") or ()) > 1:
                value.update(values=value["values"][:1], sd=0.0)
    nodes = {"train": 0, "val": 300, "test": 1100}
    given = {
        "input": "table",
        "backbone": None,
        "dataset": "scores.csv",
        "seeds": [0],
        "nodes": nodes,
        "methods": methods,
    }
    page = build({**results, **given})
    assert "<h1>scores.csv</h1>" in page
    row = re.search(r'<tr data-method="ts">(.*?)</tr>', page, flags=re.DOTALL)[1]
    assert "±" not in row
    assert "±" in build(results)
    shown = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"first seed|over seeds|% of seeds|<dt>Seeds|<dt>Backbone", shown)
    assert "training node" not in re.search(r'<script type="application/json".*?</script>', page, flags=re.DOTALL)[0]


def test_one_verdict_is_on_the_page(results, html):
    assert html.count(results["verdict"]) == 1
    without = build({k: v for k, v in results.items() if k != "verdict"})
    assert without == html  # worded the same from the numbers alone


def test_headings_and_meanings_come_from_the_table_of_metrics(html):
    for key in ("accuracy", "ece", "ece_floor", "nll", "coverage_at_5"):
        metric = METRICS[key]
        assert f'title="{metric.meaning}"' in html
        assert f">{metric.title[0].upper()}{metric.title[1:]}" in html


def test_embedded_data_is_the_measurement(results, html):
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, flags=re.DOTALL)[1])
    ours = results["methods"]["scar"]["binnings"]["20 equal-width"]
    assert data["methods"]["scar"]["binnings"]["20 equal-width"]["ece"] == ours["ece"]
    assert sum(ours["count"]) == pytest.approx(results["nodes"]["test"], abs=0.01)
    assert ours["ece"] == results["methods"]["scar"]["ece"]["mean"]  # one ECE, to the last bit
    node = data["methods"]["scar"]["changed"][0]
    assert "training node" in node["why"]
    assert "neighbour" in node["why"]


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


def test_results_without_methods_are_refused():
    with pytest.raises(ValueError, match=r"results has no methods: .* got keys \['a'\]"):
        build({"a": 1})


def test_expected_errors_of_sets_are_shown_where_the_calibration_counts():
    record = sample_results()
    assert "Expected errors" not in build(record)
    record["counts"] = [{"name": "predicted <b>", "nodes": 1200, "expected": 31.4, "low": 20, "high": 1045}]
    page = build(record)
    assert "Expected errors" in page
    assert "predicted &lt;b&gt;" in page
    assert "20 to 1,045" in page
    assert "1,200" in page
