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


# ------------------------------------------------------------------------------------------- `graphcal run citeseer --seeds 2`

RUN: dict[str, Any] = json.loads((FOLDER / "run-citeseer.json").read_text(encoding="utf-8"))
RUN["methods"]["graph-scar"] = RUN["methods"].pop("scar")  # what 0.1 called scar
WORDS = ("worst", "advice", "explanation", "why", "convention")  # sentences may be written better
# A key of 0.1 -> the key of today, by the key it stands under. What stood under "measurement" is now in the method itself.
RENAMED_IN_RUN = {
    "measurement": {"mean_confidence": "confidence", "mean_gap": "signed_gap"},
    "binnings": {"conf": "confidence", "floor": "ece_floor", "debiased": "ece_debiased"},
    "slices": {"gap": "signed_gap", "gap_low": "signed_gap_low", "gap_high": "signed_gap_high", "floor": "ece_floor"},
    "limit": {"floor": "ece_floor"},
}
MEANS = ("confidence", "signed_gap")  # of all seeds; today with their values


def as_today(golden: Any, under: str = "") -> Any:
    """The golden record with the keys of today."""
    if isinstance(golden, list):
        return [as_today(one, under) for one in golden]
    if not isinstance(golden, dict):
        return golden
    names = RENAMED_IN_RUN.get(under, {})
    inner = under if under in ("binnings", "slices") else ""
    found = {names.get(k, k): as_today(v, k if k in RENAMED_IN_RUN else inner) for k, v in golden.items()}
    measurement = found.pop("measurement", {})
    return {**found, **{k: {"mean": v} if k in MEANS else v for k, v in measurement.items()}}


def differences(found: Any, golden: Any, path: str = "") -> list[str]:
    """Where the numbers of ``golden`` are not found."""
    if isinstance(golden, dict):
        inner = [k for k in golden if k not in WORDS]
        missing = [f"{path}/{k} is missing" for k in inner if k not in found]
        return missing + [d for k in inner if k in found for d in differences(found[k], golden[k], f"{path}/{k}")]
    if isinstance(golden, list):
        if len(found) != len(golden):
            return [f"{path}: {len(found)} for {len(golden)}"]
        return [d for k, (a, b) in enumerate(zip(found, golden)) for d in differences(a, b, f"{path}[{k}]")]
    same = found == pytest.approx(golden, abs=WITHIN) if isinstance(golden, float) else found == golden
    return [] if same else [f"{path}: {found!r} for {golden!r}"]
