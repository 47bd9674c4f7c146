"""The install matrix follows pyproject.toml: every extra, the oldest version of every dependency; an audit counts what it saw."""

from __future__ import annotations

import re
from pathlib import Path

import audit
import matrix
import pytest

from graphcal.files import read_toml

ROOT = Path(__file__).resolve().parent.parent
PROJECT = read_toml(ROOT / "pyproject.toml")["project"]
OURS = {"test", "docs", "lint", "dev"}  # extras for whoever works on graphcal itself


def test_every_extra_is_in_the_matrix() -> None:
    assert set(matrix.EXTRAS) == set(PROJECT["optional-dependencies"]) - OURS
    declared = {match[1] for line in PROJECT["classifiers"] if (match := re.search(r":: (3\.\d+)$", line))}
    assert set(matrix.PYTHONS) == declared


def test_the_oldest_versions_are_the_floors() -> None:
    """Exactly the floor on the oldest interpreters, for all but torch, which is what can be had; newer ones need newer builds."""
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    pins: dict[str, list[str]] = {}
    for line in lines:
        if match := re.match(r"([\w-]+)==([\d.]+)", line):
            pins.setdefault(match[1], []).append(match[2])
    for requirement in PROJECT["dependencies"]:
        name, floor = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
        assert name in pins, f"{name} has no oldest version"
        first = [int(part) for part in pins[name][0].split(".")]
        wanted = [int(part) for part in floor.split(".")]
        assert first[: len(wanted)] == wanted or (name == "torch" and first > wanted), (
            f"{name}: {first}, but {floor} is allowed"
        )


@pytest.mark.parametrize(
    ("packages", "words", "code"),
    [
        ([{"name": "a", "skip_reason": "no database"}] * 3, "not audited: none of 3 packages", 0),
        ([{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "x"}], "1 of 2 packages looked up, 0 with", 0),
        ([{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}], "a 1: CVE-1, fixed in 2", 1),
    ],
)  # fmt: skip
def test_an_audit_says_what_it_looked_up(packages: list[dict], words: str, code: int) -> None:
    text, status = audit.told({"dependencies": packages})
    assert words in text
    assert status == code
