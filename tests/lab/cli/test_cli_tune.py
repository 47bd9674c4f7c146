"""`graphcal tune`: searches and sweeps."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from conftest import random_graph
from graphcal.lab.cli import arguments


@pytest.mark.slow
def test_the_command_tunes_and_sweeps(tmp_path, monkeypatch) -> None:
    import typer

    from graphcal.lab.cli.tune import tune as command

    small = random_graph()
    monkeypatch.setattr(arguments, "graph_of", lambda *_: small)
    app = typer.Typer()
    app.command()(command)
    run = CliRunner().invoke
    result = run(app, ["tiny", "--search", "grid", "--decays", "5e-4,5e-5", "--seeds", "1", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["decay"] in (5e-4, 5e-5)
    table = run(
        app, ["tiny", "--sweep", "both", "--decays", "5e-4", "--seeds", "1", "--picture", str(tmp_path / "p.svg")]
    )
    assert table.exit_code == 0, table.output
    assert "global" in table.output
    assert (tmp_path / "p.svg").exists()
    assert "bisection" not in run(app, ["tiny", "--decays", "5e-4,5e-5", "--seeds", "1"]).output
    assert isinstance(run(app, ["tiny", "--decays", "a,b"]).exception, ValueError)
    assert "unknown calibrator" in str(run(app, ["tiny", "--after", "magic"]).exception)


def test_tables_with_names_and_a_delimiter_of_their_own(tmp_path) -> None:
    from graphcal.cli import app

    data = random_graph(nodes=60)
    parts = [("train", "val", "test")[k] for k in (data.val_mask.long() + 2 * data.test_mask.long()).tolist()]
    rows = [f"p{k};{int(data.y[k])};{parts[k]};{';'.join(f'{v:.3f}' for v in data.x[k].tolist())}" for k in range(60)]
    head = "paper;topic;split;" + ";".join(f"f{k}" for k in range(data.num_features))
    (tmp_path / "nodes.csv").write_text("\n".join([head, *rows]))
    (tmp_path / "edges.csv").write_text(
        "\n".join(["source;target", *(f"p{a};p{b}" for a, b in data.edge_index.t().tolist())])
    )
    few = ["--search", "grid", "--decays", "5e-4", "--seeds", "1", "--json"]
    described = ["--columns", "id=paper,label=topic", "--delimiter", ";"]
    done = CliRunner().invoke(app, ["tune", str(tmp_path), *described, *few])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["decay"] == 5e-4
    assert isinstance(CliRunner().invoke(app, ["tune", str(tmp_path), *few]).exception, ValueError)
