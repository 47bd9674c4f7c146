"""What is the same in every command: colours, completion, help that a user can follow, names that were probably meant."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from graphcal.cli import app
from graphcal.cli.completion import complete_calibrator
from graphcal.lab.cli.arguments import complete_backbone
from graphcal.lab.models import BACKBONES
from graphcal.methods import CALIBRATORS

GROUP = typer.main.get_command(app)
COMMANDS = sorted(GROUP.list_commands(None))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_no_path_of_the_repository(command):
    text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    assert f"graphcal {command} " in text.partition("Options")[0].partition("Usage")[2]
    assert "docs/" not in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_usual_terminal_shows_the_help_whole(command):
    text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).output
    assert "…" not in text  # rich's mark of a word that was cut
    examples = re.findall(rf"^ *graphcal {command} .*", GROUP.get_command(None, command).help, re.MULTILINE)
    assert examples
    assert all(len(line.strip()) < 80 for line in examples)


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
    ("typed", "completed"),
    [
        ("graphcal run cites", ["citeseer"]),
        ("graphcal run --backbone gcn", ["gcn", "gcnii"]),
        ("graphcal run --protocol ca", ["cagcn", "cagcn-clean"]),
        ("graphcal run --calibrator ts,graph-scaling-", ["ts,graph-scaling-keep"]),
        ("graphcal explain --calibrator order-", ["order-invariant"]),
        ("graphcal methods gat", ["gats"]),
        ("graphcal datasets pub", ["pubmed"]),
        ("graphcal bench graph-", ["graph-scaling"]),
    ],
)
def test_a_shell_completes_names(typed, completed):
    env = {**os.environ, "_GRAPHCAL_COMPLETE": "complete_bash", "COMP_WORDS": typed}
    shown = CliRunner().invoke(app, [], env={**env, "COMP_CWORD": str(len(typed.split()) - 1)}, prog_name="graphcal")
    assert shown.output.split() == completed


def test_what_is_completed_is_all_there_is_and_waits_for_no_torch():
    code = (
        "import sys; from graphcal.cli.completion import complete_calibrator; from graphcal.lab.cli import arguments as c; "
        "print(*c.complete_dataset(''), *c.complete_protocol(''), *complete_calibrator(''), *c.complete_preset('')); "
        "print('torch' in sys.modules)"
    )
    names, has_torch = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split("\n")[:2]
    assert has_torch == "False"
    assert {"citeseer", "random", "graph-scaling", "blind"} <= set(names.split())
    assert sorted(complete_calibrator("")) == sorted(CALIBRATORS)
    assert sorted(complete_backbone("")) == sorted(BACKBONES)


@pytest.mark.parametrize("command", ["tune", "shift", "explain"])
def test_own_tables_are_described_as_for_run(command):
    """The options of a graph of one's own are the same wherever a graph is trained on."""
    names = ("dataset", "backbone", "labels_per_class", "protocol", "split", "columns", "delimiter")
    here, there = ({one.name: one for one in GROUP.get_command(None, name).params} for name in (command, "run"))
    assert [(here[name].opts, here[name].default, here[name].help) for name in names] == [
        (there[name].opts, there[name].default, there[name].help) for name in names
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "citeser"], "Did you mean 'citeseer'?"),
        (["run", "citeseer", "--protocol", "publick"], "Did you mean 'public'?"),
        (["run", "--calibrator", "graph-scalling"], "Did you mean 'graph-scaling'?"),
        (["run", "--backbone", "gcnn"], "Did you mean 'gcn'?"),
        (["run", "no/such/folder"], "no/such/folder: no such file or folder"),
        (["methods", "gat"], "Did you mean 'gats'?"),
    ],
)
def test_the_name_that_was_meant(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, ValueError)
    assert message in str(refused.exception)
