"""Every python block in the README and the docs runs; the blocks of one page share a namespace."""

import os
import re
import sys
from pathlib import Path

import pytest
import typer

from graphcal.cli import app

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "docs" / "notebooks").glob("*.md"))  # their code: test_examples.py
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES_WITH_CODE = [p for p in PAGES if BLOCK.search(p.read_text(encoding="utf-8"))]


@pytest.mark.slow_cases(
    "theory.md",
    "training.md",
    "methods.md",
    "shift.md",
    "bench.md",
    "deploy.md",
    "graph-scaling.md",
)
@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda p: p.name)
def test_code_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    if "GRAPHCAL_DATA" in "".join(BLOCK.findall(text)) and not os.environ.get("GRAPHCAL_DATA"):
        pytest.skip("this page's code reads real graphs: set GRAPHCAL_DATA")
    namespace: dict = {"__name__": "docs"}
    for match in BLOCK.finditer(text):
        line = text[: match.start()].count("\n") + 2
        code = "\n" * (line - 1) + match.group(1)
        exec(compile(code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def commands_on(page):
    """Every `graphcal COMMAND ...` that the page prints as a command, without its comment."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [*"\n".join(blocks).splitlines(), *re.findall(r"`(graphcal [^`]+)`", prose)]
    return [re.sub(r"^\$ |\s+#.*$", "", line) for line in lines if re.match(r"(\$ )?graphcal [a-z]", line)]


@pytest.mark.parametrize("page", [p for p in [*PAGES, *EXAMPLES] if commands_on(p)], ids=lambda p: p.name)
def test_commands_on_the_page_have_the_options_they_name(page):
    group = typer.main.get_command(app)
    commands = {name: group.get_command(None, name) for name in group.list_commands(None)}
    for line in commands_on(page):
        _, name, *rest = line.split()
        assert name in commands, line
        options = {opt for one in commands[name].params for opt in [*one.opts, *one.secondary_opts]} | {"--help", "-h"}
        for word in rest:
            if re.match(r"--?[a-z]", word):
                assert word.split("=")[0].rstrip(",;.:)") in options, line


def test_a_package_index_gets_no_broken_picture_and_no_dead_link():
    """As hatch-fancy-pypi-readme makes the long description when a wheel is built."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    page = text = (ROOT / "README.md").read_text(encoding="utf-8")
    for rule in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links)
    assert all(label in text for label in re.findall(r"(?<!!)\[([^\]]+)\]\(", page))
