"""`graphcal tune`: searches and sweeps."""

from __future__ import annotations

import json
import sys

from typer.testing import CliRunner

from conftest import random_graph


def test_the_command_tunes_and_sweeps(tmp_path, monkeypatch) -> None:
    import typer

    from graphcal.cli.tune import tune as command

    small = random_graph()
    monkeypatch.setattr(sys.modules[command.__module__], "graph_of", lambda *_: small)
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
