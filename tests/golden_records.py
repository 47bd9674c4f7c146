"""Golden numbers: what 0.1 measured, kept so that no change of the house moves one of them.

`records(folder, backbone, methods)` computes bench records of a short training on Citeseer; `close` compares them with
tests/golden/bench.json (made by 0.1.0). On the CPU that made them they are equal to 1e-7. Another CPU adds up in another
order: two kinds of CPU differ by 2.5e-6 at most after these 40 epochs, so `WITHIN` is what any machine must reach.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graphcal.bench.engines import Serial
from graphcal.bench.presets import build_preset
from graphcal.bench.session import Session

FOLDER = Path(__file__).parent / "golden"
GOLDEN: dict[str, Any] = json.loads((FOLDER / "bench.json").read_text(encoding="utf-8"))
WITHIN = 1e-5
TRAINING = {"epochs": 40, "hidden_channels": 16}
# A key of 0.1 -> the key of today and the factor between the two
RENAMED = {"over_confidence": ("signed_gap", -1)}


def records(folder: Path, backbone: str, methods: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The result of every method on one short training."""
    preset = build_preset(
        "golden",
        {
            "title": "golden",
            "source": "the test suite",
            "runs": 1,
            "methods": list(methods),
            "axes": {"dataset": ["citeseer"], "labels_per_class": [20], "backbone": [backbone]},
            "base": {"protocol": "public", "recipe": "cagcn", "block": 2, "training": TRAINING},
            "define": {name: {"title": name, **method} for name, method in methods.items()},
        },
    )
    session = Session.of(preset, folder)
    session.run(Serial(), lambda *_: None)
    assert not session.failed()
    return {one.method: dict(session.store.record(one.cell.key).result) for one in session.slots}


def close(found: Mapping[str, Any], golden: Mapping[str, Any]) -> None:
    """Every number of 0.1 is still there."""
    assert found["changed"] == golden["changed"]
    for nodes in ("test", "unlabelled", "validation"):
        for metric, value in golden[nodes].items():
            key, factor = RENAMED.get(metric, (metric, 1))
            assert found[nodes][key] == pytest.approx(factor * value, abs=WITHIN), f"{metric} on {nodes} nodes"
