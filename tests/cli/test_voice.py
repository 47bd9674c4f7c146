"""What is the same in every command: colours, completion, help that a user can follow, names that were probably meant."""

from __future__ import annotations

import os
import re

import pytest
import typer
from typer.testing import CliRunner

from graphcal.cli import app

COMMANDS = sorted(typer.main.get_command(app).commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_no_path_of_the_repository(command):
    text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    assert f"graphcal {command} " in text.partition("Options")[0].partition("Usage")[2]
    assert "docs/" not in text


def test_no_color_is_honoured():
    env = {"FORCE_COLOR": "1", "COLUMNS": "200"}
    assert re.search(r"\x1b\[[0-9;]*3[0-9]", CliRunner().invoke(app, ["--help"], env=env, color=True).output)
    plain = CliRunner().invoke(app, ["datasets"], env={"NO_COLOR": "1"}, color=True).output
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain)


def test_a_shell_completes_commands():
    env = {**os.environ, "_GRAPHCAL_COMPLETE": "complete_bash", "COMP_WORDS": "graphcal cal", "COMP_CWORD": "1"}
    shown = CliRunner().invoke(app, [], env=env, prog_name="graphcal").output
    assert shown.split() == ["calibrate"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "citeser"], "Did you mean 'citeseer'?"),
        (["run", "citeseer", "--protocol", "publick"], "Did you mean 'public'?"),
        (["run", "--calibrator", "graph-scalling"], "Did you mean 'graph-scaling'?"),
        (["run", "--backbone", "gcnn"], "Did you mean 'gcn'?"),
        (["run", "no/such/folder"], "no/such/folder: no such file or folder"),
        (["methods", "gat"], "Did you mean 'gats'?"),
    ],
)
def test_the_name_that_was_meant(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, ValueError)
    assert said in str(refused.exception)
