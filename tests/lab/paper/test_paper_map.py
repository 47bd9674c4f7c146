"""The page from paper to code: every path is there, every name is defined in its file, questions are answered."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import graphcal

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "paper-appendix.md").read_text(encoding="utf-8").partition("## From the paper to the code\n")[2]
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "in the code" not in line]
PATH = re.compile(r"`([a-z_/-]+(?:\.py|\.toml|/))`(?:: ((?:`\w+`(?:, )?)+))?")


def defined(path: Path) -> set[str]:
    """Functions, classes and methods of a file."""
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.slow
def test_every_path_exists_and_every_name_is_defined_there():
    entries = PATH.findall(PAGE)
    assert len(entries) > 20
    for path, names in entries:
        file = ROOT / "src" / "graphcal" / path
        assert file.exists(), path
        for name in re.findall(r"\w+", names):
            assert name in defined(file), f"{path} has no {name}"


def test_every_public_name_on_the_page_is_one():
    names = re.findall(r"`graphcal\.(lab\.)?(\w+)", PAGE)
    assert len(names) > 3
    for laboratory, name in names:
        assert name in (graphcal.lab if laboratory else graphcal).__all__, name
