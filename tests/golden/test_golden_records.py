"""Every calibrator, and every model with and without a temperature, gives what 0.1 gave."""

from __future__ import annotations

import pytest
from golden_records import GOLDEN, close, records

EXACT = "ts platt vs ms ets isotonic histogram dirichlet spline order-invariant scar rbs simi-mailbox auto".split()
LEARNED = "cagcn gats dcgc simcalib gets wats dc-gnn".split()
ON_GCN = {
    "uncal": {"calibrator": "none"},
    **{name: {"calibrator": name} for name in EXACT},
    **{name: {"calibrator": name, "settings": {"epochs": 20}} for name in LEARNED},
    "scar-exact": {"calibrator": "scar", "settings": {"graph": False}},
    "scar-given": {"calibrator": "scar", "settings": {"alpha": 1e-3, "beta": 2e-3}},
    "scar-alpha-only": {"calibrator": "scar", "settings": {"beta": 0.0}},
    "scar-beta-only": {"calibrator": "scar", "settings": {"alpha": 0.0}},
    "scar-temperature": {"calibrator": "scar", "settings": {"temperature": True}},
    "scar-grid": {"calibrator": "scar", "settings": {"search": "grid"}},
    "scar-shared": {"calibrator": "scar", "settings": {"graph": False, "per": "shared"}},
    "scar-hop": {"calibrator": "scar", "settings": {"graph": False, "per": "hop"}},
    "scar-no-guard": {"calibrator": "scar", "settings": {"graph": False, "keep_predictions": False}},
    "scar-graph-no-guard": {"calibrator": "scar", "settings": {"keep_predictions": False}},
    "final-decay": {"calibrator": "ts", "training": {"final_weight_decay": 5e-5}},
    "searched": {"calibrator": "ts", "search": {"final_weight_decay": [5e-4, 0.0]}},
}
ON_GAT = {name: ON_GCN[name] for name in ("uncal", "ts", "scar", "dcgc")}
PLAIN = {"uncal": {"calibrator": "none"}, "ts": {"calibrator": "ts"}}
OTHERS = "gcnii fagcn sage appnp sgc mlp jknet gpn".split()


@pytest.mark.parametrize(
    ("backbone", "methods"),
    [("gcn", ON_GCN), ("gat", ON_GAT), *((name, PLAIN) for name in OTHERS)],
    ids=["gcn", "gat", *OTHERS],
)
def test_records_are_those_of_0_1(backbone, methods, tmp_path):
    for name, found in records(tmp_path, backbone, methods).items():
        close(found, GOLDEN[f"{backbone}/{name}"])
