"""``graphcal methods`` and the page in the docs say the same, from the same cards."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from conftest import needs_lab
from graphcal.cli.methods import methods
from graphcal.methods import CALIBRATORS
from graphcal.methods.card import idea_of

ROOT = Path(__file__).parents[1]


def invoke(*arguments: str):
    app = typer.Typer()
    app.command()(methods)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_all_are_listed():
    result = invoke()
    assert result.exit_code == 0
    listed, everything = (set(json.loads(invoke("--json", *more).stdout)["methods"]) for more in ([], ["--all"]))
    for name in listed:
        assert name in result.stdout
    assert everything == set(CALIBRATORS)
    hidden = everything - listed
    assert all(CALIBRATORS[name].__module__.startswith("graphcal.lab.paper.") for name in hidden)
    assert not any(CALIBRATORS[name].__module__.startswith("graphcal.lab.paper.") for name in listed)


def test_bibtex_has_the_paper_of_every_calibrator():
    everything = invoke("--bibtex").stdout
    for name, card in json.loads(invoke("--json").stdout)["methods"].items():
        entries = invoke(name, "--bibtex").stdout
        assert (entries.count("@") > 0) == (name not in ("none", "dc-gnn")), name  # those two have none
        assert entries.strip() in everything or entries.count("@") > 1
        if name != "dc-gnn":
            assert all(f"eprint = {{{number}}}" in entries for number in re.findall(r"arXiv:([\d.]+)", card["paper"]))
    assert everything.count("{") == everything.count("}")


@pytest.mark.parametrize("name", ["scar", pytest.param("simi-mailbox", marks=needs_lab)])
def test_a_card_has_every_line(name):
    text = " ".join(invoke(name).stdout.split())
    card = CALIBRATORS[name].card
    for value in (
        idea_of(CALIBRATORS[name]),
        card.formula,
        card.paper,
        card.cost,
        card.departures,
        "keeps predictions yes",
    ):
        assert " ".join(value.split()) in text
    assert json.loads(invoke(name, "--json").stdout)["keeps_predictions"] is True


def test_an_unknown_name_lists_the_choices():
    result = invoke("nonsense")
    assert isinstance(result.exception, ValueError)
    assert "choose among none, ts" in str(result.exception)


def tool_of(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


@needs_lab
def test_the_page_of_commands_is_up_to_date():
    tool = tool_of("build_cli_docs")
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(), "run: python tools/build_cli_docs.py"


@needs_lab
def test_the_page_in_the_docs_is_up_to_date():
    tool = tool_of("build_method_docs")
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(), "run: python tools/build_method_docs.py"
    for file, text in tool.cards_files().items():
        assert file.read_text(encoding="utf-8") == text, "run: python tools/build_method_docs.py"


def test_the_list_and_a_card_do_not_wait_for_torch():
    code = (
        "import sys, typer.testing, graphcal.cli as c; run = typer.testing.CliRunner().invoke; "
        "assert run(c.app, ['methods']).exit_code == run(c.app, ['methods', 'scar']).exit_code == 0; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
