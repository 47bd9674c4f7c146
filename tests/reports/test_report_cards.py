import json
import re

import pytest
from typer.testing import CliRunner

from graphcal.cli import app
from graphcal.reports import model_card
from sample_results import sample_results


@pytest.fixture(scope="module")
def card():
    return model_card(sample_results())


def test_hugging_faces_block_holds_the_measured_values(card):
    yaml = pytest.importorskip("yaml")
    block = yaml.safe_load(re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)[1])
    assert block["library_name"] == "graphcal"
    (model,) = block["model-index"]
    (result,) = model["results"]
    assert set(result) == {"task", "dataset", "metrics"}
    assert result["dataset"]["name"] == "sample"
    method = sample_results()["methods"]["scar"]  # the method that decides
    for metric in result["metrics"]:
        assert metric["value"] == pytest.approx(method[metric["type"]]["mean"], abs=1e-5)
    assert {m["type"] for m in result["metrics"]} == {"accuracy", "ece", "nll", "brier"}


def test_verdict_decision_and_every_method_are_on_the_card(card):
    results = sample_results()
    assert results["verdict"] in card
    assert results["decision"]["sentence"] in card
    for method in results["methods"].values():
        assert f"{100 * method['ece']['mean']:.2f}" in card
    assert "graphcal run sample" in card


def test_the_command_writes_it(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(sample_results()))
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--card", "-o", str(tmp_path / "README.md")])
    assert done.exit_code == 0
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == model_card(
        json.loads((tmp_path / "results.json").read_text())
    )
    done = CliRunner().invoke(app, ["report", str(tmp_path), str(tmp_path), "--card"])
    assert "a model card is of one result; got 2" in str(done.exception)
