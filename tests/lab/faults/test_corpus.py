"""Inputs that once broke a reader, found by `tools/fuzz.py`: each is accepted or refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import fuzz
import pytest

CORPUS = Path(__file__).parent / "corpus"
INPUTS = sorted(path.relative_to(CORPUS) for path in CORPUS.glob("*/*"))


@pytest.mark.parametrize("folder", INPUTS, ids=str)
def test_it_ends_in_a_value_or_in_our_error(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(CORPUS / folder, tmp_path / "input")
    assert fuzz.read_input(folder.parts[0], tmp_path / "input") in ("accepted", "refused")


def test_every_target_writes_and_reads(tmp_path: Path) -> None:
    """The same number gives the same outcome, and the fuzzer is not blind: some inputs are accepted, some refused."""
    for target in ("npz", "csv", "planetoid", "record"):
        outcomes = [fuzz.one_input(target, number, tmp_path / "input") for number in range(1, 13)]
        assert outcomes == [fuzz.one_input(target, number, tmp_path / "input") for number in range(1, 13)]
        assert set(outcomes) <= {"accepted", "refused"}
        assert "refused" in outcomes
