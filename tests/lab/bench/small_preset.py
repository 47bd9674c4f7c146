"""The small preset of this folder, and changes to it; without torch, so that a new worker is there at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphcal.files import read_toml
from graphcal.lab.bench.presets import Preset, build_preset
from graphcal.lab.bench.records import Cell, TrainingGroup

FILE = Path(__file__).with_name("small.toml")
SMALL = read_toml(FILE)
GROUP = TrainingGroup("citeseer", "public", 20, None, "gcn", {"layers": 2}, {"lr": 0.01, "epochs": 5}, ((0, 0), (0, 1)))
CELL = Cell((GROUP,), (0, 1), "ts", {}, "none", 20)


def small(**changes: Any) -> Preset:
    """The preset with these keys replaced; ``define`` adds to the methods that are there."""
    define = {**SMALL["define"], **changes.pop("define", {})}
    return build_preset("small", {**SMALL, **changes, "define": define})
