"""`graphcal datasets`: the list and the card, for people and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from graphcal.lab.cli.datasets import datasets
from graphcal.lab.datasets import NAMES


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(datasets)
    return app


def test_the_command_lists(alone: Path, command: typer.Typer) -> None:
    shown = CliRunner().invoke(command, [])
    assert shown.exit_code == 0
    for name in NAMES:
        assert name in shown.output
    assert max(len(line) for line in shown.output.splitlines()) <= 80 + 3
    rows = json.loads(CliRunner().invoke(command, ["--json"]).output)["datasets"]
    assert {row["name"]: row["here"] for row in rows}["citeseer"] == "embedded"


def test_the_command_prints_the_card(alone: Path, command: typer.Typer) -> None:
    shown = CliRunner().invoke(command, ["citeseer"])
    assert shown.exit_code == 0
    for part in ("3,327 nodes", "9,104 directed edges", "homophily 0.738", "48 isolated", "cagcn", "25.3%"):
        assert part in shown.output
    card = json.loads(CliRunner().invoke(command, ["citeseer", "--json"]).output)
    assert card["num_classes"] == 6
    assert card["protocols"][0]["train"] == 120


def test_an_unknown_name_lists_the_choices(command: typer.Typer) -> None:
    with pytest.raises(ValueError, match="unknown dataset 'cor'; choose among cora.* Did you mean 'cora'"):
        CliRunner().invoke(command, ["cor"], catch_exceptions=False)
