"""`graphcal explain`: terms that add up, a picture, clear refusals."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from conftest import random_graph
from graphcal.lab.cli import arguments


def test_the_command_prints_terms_that_add_up(tmp_path, monkeypatch) -> None:
    import typer

    from graphcal.lab.cli.explain import explain as command

    app = typer.Typer()
    app.command()(command)
    picture = tmp_path / "node.svg"
    result = CliRunner().invoke(app, ["citeseer", "--node", "2000", "--json", "--picture", str(picture)])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    for row in record["classes"]:
        assert row["intra"] + row["inter"] + row["bias"] + row["residual"] == pytest.approx(row["logit"], abs=1e-4)
    assert abs(record["lead_terms"]["not explained"]) < 0.05 * abs(record["lead"]) + 0.02
    assert picture.stat().st_size > 1000
    monkeypatch.setattr(arguments, "graph_of", lambda *_: random_graph())
    table = CliRunner().invoke(app, ["tiny", "--node", "20", "--calibrator", "none"])
    assert "logits = intra + inter" in table.output
    refused = CliRunner().invoke(app, ["tiny", "--node", "99999"])
    assert isinstance(refused.exception, ValueError)
    assert "nodes 0..149" in str(refused.exception)


def test_nodes_and_classes_have_their_own_names(monkeypatch) -> None:
    import typer

    from graphcal.lab.cli.explain import explain as command

    data = random_graph()
    data.node_ids = [f"paper-{k}" for k in range(data.num_nodes)]
    data.class_names = [f"topic-{k}" for k in range(int(data.y.max()) + 1)]
    app = typer.Typer()
    app.command()(command)
    monkeypatch.setattr(arguments, "graph_of", lambda *_: data)
    result = CliRunner().invoke(app, ["tiny", "--node", "paper-20", "--calibrator", "none", "--json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["node"] == 20
    assert record["sentence"].startswith(f"Node paper-20 is class topic-{record['pred']} with confidence")
    for push in record["pushes_for"]:
        assert push["name"] == f"paper-{push['node']}"
    refused = CliRunner().invoke(app, ["tiny", "--node", "20"])
    assert "has ids such as paper-0, paper-1, paper-2" in str(refused.exception)
