"""Golden numbers: bench records of every method after a short training on Citeseer, so that no refactoring moves one.

Make golden.json anew only when a method is meant to change: python tests/lab/golden/test_golden.py
On the CPU that made them records are equal to 1e-7. Another CPU adds up in another order and differs by up to 2.5e-6.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graphcal.lab.bench.engines import Serial
from graphcal.lab.bench.presets import build_preset
from graphcal.lab.bench.session import Session
from graphcal.methods import CALIBRATORS

FILE = Path(__file__).with_name("golden.json")
WITHIN = 1e-5
TRAINING = {"epochs": 40, "hidden_channels": 16}
METRICS = ("accuracy", "brier", "confidence", "ece", "ece_debiased", "ece_floor", "nll", "signed_gap")

EXACT = [
    "ts",
    "platt",
    "vs",
    "ms",
    "sms",
    "ets",
    "isotonic",
    "isotonic-keep",
    "histogram",
    "dirichlet",
    "spline",
    "order-invariant",
    "rbs",
    "simi-mailbox",
]
LEARNED = ["cagcn", "gats", "dcgc", "simcalib", "gets", "wats", "dc-gnn"]
VARIANTS = [
    "ms-cagcn",
    "scar-grid",
    "scar-no-guard",
    "ts-accumulated",
    "ts-base-dropout",
]
ON_GCN: dict[str, dict[str, Any]] = {
    "uncal": {"calibrator": "none"},
    **{name: {"calibrator": name} for name in [*EXACT, *VARIANTS]},
    **{name: {"calibrator": name, "settings": {"epochs": 20}} for name in [*LEARNED, "cagcn-code", "cagcn-gats"]},
    "scar-exact": {"calibrator": "scar"},
    "scar-given": {"calibrator": "scar", "settings": {"alpha": 1e-3, "beta": 2e-3}},
    "scar-alpha-only": {"calibrator": "scar", "settings": {"beta": 0.0}},
    "scar-beta-only": {"calibrator": "scar", "settings": {"alpha": 0.0}},
    "scar-temperature": {"calibrator": "scar", "settings": {"temperature": True}},
    "final-decay": {"calibrator": "ts", "training": {"final_weight_decay": 5e-5}},
    "searched": {"calibrator": "ts", "search": {"final_weight_decay": [5e-4, 0.0]}},
}
PLAIN = {"uncal": {"calibrator": "none"}, "ts": {"calibrator": "ts"}}
CASES = {
    "gcn": ON_GCN,
    "gat": {name: ON_GCN[name] for name in ("uncal", "ts", "dcgc", "scar-exact")},
    **dict.fromkeys(("gcnii", "fagcn", "sage", "appnp", "sgc", "mlp", "jknet", "gpn"), PLAIN),
}


def records(folder: Path, backbone: str, methods: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Measure every method on one short training."""
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
    results = {one.method: session.store.record(one.cell.key).result for one in session.slots}
    nodes = ("test", "unlabelled", "validation")
    return {
        f"{backbone}/{name}": {
            "changed": result["changed"],
            **{part: {key: result[part][key] for key in METRICS if key in result[part]} for part in nodes},
        }
        for name, result in results.items()
    }


@pytest.mark.slow_cases("gcn", "gat", "gcnii", "gpn", "sgc", "sage", "fagcn", "jknet", "appnp")
@pytest.mark.parametrize("backbone", CASES)
def test_records_have_not_moved(backbone, tmp_path):
    golden = json.loads(FILE.read_text(encoding="utf-8"))
    methods = {name: one for name, one in CASES[backbone].items() if one["calibrator"] in CALIBRATORS}
    for name, measured in records(tmp_path, backbone, methods).items():  # variants are in graphcal.lab.paper
        assert measured["changed"] == golden[name]["changed"], name
        for part in ("test", "unlabelled", "validation"):
            assert measured[part] == pytest.approx(golden[name][part], abs=WITHIN), f"{name} on {part} nodes"


if __name__ == "__main__":
    made = {}
    for backbone, methods in CASES.items():
        with tempfile.TemporaryDirectory() as scratch:
            made |= records(Path(scratch), backbone, methods)
    FILE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
