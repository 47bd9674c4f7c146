"""A preset that is small enough for the test suite: the embedded graph, few epochs, three methods."""

from __future__ import annotations

from typing import Any

from graphcal.bench.presets import Preset, preset_of
from graphcal.bench.spec import Base, Cell

BASE = Base("citeseer", "public", 20, None, "gcn", {"layers": 2}, {"lr": 0.01, "epochs": 5}, ((0, 0), (0, 1)))
CELL = Cell((BASE,), (0, 1), "ts", {}, "none", 20)

SMALL: dict[str, Any] = {
    "title": "A small table",
    "source": "the test suite",
    "runs": 4,
    "methods": ["uncal", "ts", "searched"],
    "axes": {"dataset": ["citeseer"], "labels_per_class": [20], "backbone": ["gcn"]},
    "base": {
        "protocol": "public",
        "recipe": "cagcn",
        "block": 2,
        "training": {"epochs": 30, "hidden_channels": 16, "lr": 0.02},
    },
    "define": {"searched": {"calibrator": "ts", "search": {"final_weight_decay": [5e-4, 0.0]}}},
    "published": [{"where": {"dataset": "citeseer"}, "values": {"uncal": [12.48, 0.71], "ts": [99.0, 0.1]}}],
    "remark": [{"where": {"method": "ts"}, "text": "a known error"}],
}


def small(**changes: Any) -> Preset:
    return preset_of("small", {**SMALL, **changes})
