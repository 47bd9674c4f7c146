"""The reviewers' tables: forms of SCAR that differ, and a start from zero decay."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from conftest import random_graph
from graphcal.lab.paper import reviewers
from graphcal.lab.paper.reviewers import weights_table, zero_decay
from graphcal.lab.training import Training
from graphcal.methods import SCAR, TemperatureScaling, Uncalibrated

QUICK = Training(hidden_channels=8, epochs=30, patience=None, dropout=0.0)
FEW = {"none": Uncalibrated(), "ts": TemperatureScaling(), "scar": SCAR()}


def test_one_weight_or_two_and_a_start_from_zero_decay() -> None:
    data = random_graph()
    rows = weights_table(data, training=QUICK, seeds=[0])
    assert [row["method"] for row in rows][1:5] == ["alpha only", "beta only", "one weight", "two weights"]
    assert len({round(row["nll"], 6) for row in rows}) > 3  # the forms differ
    rows = zero_decay(data, training=QUICK, seeds=[0], methods=FEW)
    assert [(row["final_decay"], row["method"]) for row in rows] == [
        (decay, name) for decay in ("as trained", "zero") for name in FEW
    ]
    assert rows[0]["confidence"] < rows[3]["confidence"]  # without decay the model is more confident


@pytest.mark.slow_cases("zero-decay")
@pytest.mark.parametrize("table", ["weights", "zero-decay"])
def test_the_module_prints_its_tables(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviewers, "graph_of", lambda *_: random_graph())
    app = typer.Typer()
    app.command()(reviewers.reviewers)
    result = CliRunner().invoke(app, ["tiny", "--table", table, "--seeds", "1", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    monkeypatch.setitem(reviewers.ASKED_FOR, table, lambda *_, **__: rows)
    printed = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["tiny", "--table", table]).output
    for row in rows:
        assert f"{row['nll']:.3f}" in printed
        assert row["method"].split()[0] in printed
    assert "is not one of weights, zero-decay" in CliRunner().invoke(app, ["tiny", "--table", "magic"]).output
