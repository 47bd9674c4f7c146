"""Names that a shell completes, looked up without importing torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graphcal.plugins import announced

CARDS = ("methods/cards.json", "lab/baselines/cards.json")  # written by tools/build_method_docs.py


def read_cards() -> dict[str, dict[str, Any]]:
    """Read the cards of our calibrators, by name; torch is not imported for them."""
    files = [Path(__file__).parents[1] / name for name in CARDS]
    return {name: card for f in files if f.exists() for name, card in json.loads(f.read_text("utf-8")).items()}


def complete_calibrator(incomplete: str) -> list[str]:
    return matching(incomplete, dict.fromkeys([*read_cards(), *announced("calibrator")]))


def complete_calibrators(incomplete: str) -> list[str]:
    """Complete the last of several names separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in complete_calibrator(last)]


def matching(start: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(start)]
