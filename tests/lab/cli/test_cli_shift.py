"""`graphcal shift`: every row of its tables fits on 80 columns with all its numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from conftest import random_graph
from graphcal.lab.cli import arguments
from graphcal.lab.cli.shift import SHOWN_METRICS


@pytest.mark.parametrize("table", ["shift", "wrong"])
def test_the_command_prints_its_tables(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    from graphcal.lab.cli.shift import shift as command

    small = random_graph()
    monkeypatch.setattr(arguments, "graph_of", lambda *_: small)
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, ["tiny", "--table", table, "--seeds", "1", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert rows[0]["method"] == "none"
    maker = {"shift": "out_of_distribution", "wrong": "wrong_predictions"}[table]
    monkeypatch.setattr(f"graphcal.lab.shift.{maker}", lambda *_, **__: rows)
    printed = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["tiny", "--table", table, "--seeds", "1"]).output
    _everything_fits(rows, printed.splitlines())
    refused = CliRunner().invoke(app, ["tiny", "--table", "magic"]).exception
    assert "not one of shift, wrong" in str(refused)


def _everything_fits(rows: list[dict[str, Any]], lines: list[str]) -> None:
    """On 80 columns every row is one line that has the method's whole name and all numbers, in order."""
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    expected = [
        [
            *row["method"].split(),
            *(f"{100 * row[name]:.1f}" for name in SHOWN_METRICS[:-1] if name in row),
            f"{row['nll']:.3f}",
        ]
        for row in rows
    ]
    cells = [line.split() for line in lines]
    assert [line for line in cells if line in expected] == expected
    assert "means over seeds" in " ".join(lines)
    for row in rows:
        if row.get("shift") in ("features", "edges"):
            assert f"{row['shift']}, {100 * row['share']:.0f} % changed" in [line.strip() for line in lines]
        elif "shift" in row:
            assert any(line.strip().endswith(row["shift"]) for line in lines)


def test_the_table_of_new_nodes_says_when_and_how(monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    from graphcal.lab.cli.shift import shift as command

    numbers = {"accuracy": 0.8, "signed_gap": 0.01, "confidence_right": 0.9, "confidence_wrong": 0.6, "ece": 0.02}
    numbers |= {"auroc": 0.7, "nll": 0.5, "changed": 0.0}
    rows = [{"shift": "wave", "wave": 2, "method": "ts", **numbers}]
    rows += [{"shift": "sampled", "fanout": "5", "way": way, "method": "ts", **numbers} for way in ("table", "plain")]
    received: dict[str, Any] = {}
    monkeypatch.setattr(arguments, "graph_of", lambda *_: random_graph())
    monkeypatch.setattr("graphcal.lab.shift.inductive", lambda *_, **given: received.update(given) or rows)
    app = typer.Typer()
    app.command()(command)
    asked_for = ["tiny", "--table", "inductive", "--seeds", "2", "--keep", "here", "--calibrator", "ts"]
    printed = CliRunner(env={"COLUMNS": "80"}).invoke(app, asked_for).output
    assert received["folder"] == "here"
    assert list(received["seeds"]) == [0, 1]
    assert list(received["methods"]) == ["ts"]
    assert "wave 2: nodes that were not there before" in printed
    assert "fan-out 5, the graph read once as a whole" in printed
    assert "fan-out 5, nothing known of the neighbourhood" in printed
