"""`graphcal run citeseer --seeds 2`, trained for 40 epochs, measures what 0.1 measured; seconds and wording are left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

import graphcal
from golden_records import FOLDER, TRAINING, WITHIN

GOLDEN = json.loads((FOLDER / "run-citeseer.json").read_text(encoding="utf-8"))
GOLDEN["methods"]["graph-scar"] = GOLDEN["methods"].pop("scar")  # what 0.1 called scar
WORDS = ("worst", "advice", "explanation", "why", "convention")  # sentences may be written better
# A key of 0.1 -> the key of today, by the key it stands under. What stood under "measurement" is now in the method itself.
RENAMED = {
    "measurement": {"mean_confidence": "confidence", "mean_gap": "signed_gap"},
    "binnings": {"conf": "confidence", "floor": "ece_floor", "debiased": "ece_debiased"},
    "slices": {"gap": "signed_gap", "gap_low": "signed_gap_low", "gap_high": "signed_gap_high", "floor": "ece_floor"},
    "limit": {"floor": "ece_floor"},
}
MEANS = ("confidence", "signed_gap")  # of all seeds; today with their values


def renamed(golden: Any, under: str = "") -> Any:
    """The golden record with the keys of today."""
    if isinstance(golden, list):
        return [renamed(one, under) for one in golden]
    if not isinstance(golden, dict):
        return golden
    names = RENAMED.get(under, {})
    inner = under if under in ("binnings", "slices") else ""
    found = {names.get(k, k): renamed(v, k if k in RENAMED else inner) for k, v in golden.items()}
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


def test_the_run_measures_what_0_1_measured():
    training = graphcal.Training(**TRAINING)
    results = graphcal.run("citeseer", calibrators=["ts", "graph-scar"], seeds=range(2), training=training)
    record = json.loads(json.dumps(results.record))
    assert differences(record, renamed(GOLDEN)) == []
