"""Every calibrator, and every model with and without a temperature, gives what 0.1 gave."""

from __future__ import annotations

import pytest

from golden_records import GOLDEN, close, records

CLASSICAL = "ts platt vs ms ets isotonic histogram dirichlet spline order-invariant"
EXACT = f"{CLASSICAL} rbs simi-mailbox".split()
LEARNED = ["cagcn", "gats", "dcgc", "simcalib", "gets", "wats", "dc-gnn"]
ON_GCN = {
    "uncal": {"calibrator": "none"},
    **{name: {"calibrator": name} for name in EXACT},
    **{name: {"calibrator": name, "settings": {"epochs": 20}} for name in LEARNED},
    "scar-exact": {"calibrator": "scar"},
    "scar-given": {"calibrator": "scar", "settings": {"alpha": 1e-3, "beta": 2e-3}},
    "scar-alpha-only": {"calibrator": "scar", "settings": {"beta": 0.0}},
    "scar-beta-only": {"calibrator": "scar", "settings": {"alpha": 0.0}},
    "scar-temperature": {"calibrator": "scar", "settings": {"temperature": True}},
    "final-decay": {"calibrator": "ts", "training": {"final_weight_decay": 5e-5}},
    "searched": {"calibrator": "ts", "search": {"final_weight_decay": [5e-4, 0.0]}},
}
ON_GAT = {name: ON_GCN[name] for name in ("uncal", "ts", "dcgc")}
PLAIN = {"uncal": {"calibrator": "none"}, "ts": {"calibrator": "ts"}}
OTHERS = ["gcnii", "fagcn", "sage", "appnp", "sgc", "mlp", "jknet", "gpn"]


@pytest.mark.parametrize(
    ("backbone", "methods"),
    [("gcn", ON_GCN), ("gat", ON_GAT), *((name, PLAIN) for name in OTHERS)],
    ids=["gcn", "gat", *OTHERS],
)
def test_records_are_those_of_0_1(backbone, methods, tmp_path):
    for name, found in records(tmp_path, backbone, methods).items():
        close(found, GOLDEN[f"{backbone}/{name}"])
