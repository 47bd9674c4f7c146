"""Tables that README and docs quote are the committed results, rounded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
QUOTED = {"NLL": 3, "ECE %": 2, "decided at 5 % error %": 1, "worst slice %": 1, "accuracy %": 1}


def tables(path: Path, below: str = "") -> list[list[dict[str, str]]]:
    """Every table of a Markdown page below a heading, as rows of heading -> text."""
    text = path.read_text(encoding="utf-8")
    text = text.partition(below)[2] if below else text
    found: list[list[dict[str, str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.strip().split("\n")]
        if len(lines) > 2:
            found.append([dict(zip(lines[0], line)) for line in lines[2:]])
    return found


@pytest.mark.parametrize("page", ["README.md", "docs/choose.md"])
def test_the_blind_table_is_quoted_as_it_stands(page):
    results = {row["method"]: row for row in tables(ROOT / "results" / "blind.md", "## labels balanced\n")[0]}
    (quoted,) = [table for table in tables(ROOT / page) if "NLL" in table[0] and "method" in table[0]]
    assert len(quoted) >= 6
    for row in quoted:
        for name, digits in QUOTED.items():
            if name in row:
                assert row[name].strip("*") == f"{float(results[row['method'].strip('*`')][name]):.{digits}f}", row


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_sentence_is_that_of_the_run_shown(page):
    """What the pages open with is what `graphcal run` prints, as the README shows it."""
    said = re.compile(r"says (\d+) % sure on average and is right (\d+) % of the time")
    readme, text = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", page))
    shown = re.search(r"^\$ graphcal run\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)[1]
    printed, opening = (said.search(" ".join(t.split())) for t in (shown, text))
    assert opening.groups() == printed.groups()
