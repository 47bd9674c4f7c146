"""The variants that imitate published code give what 0.1 gave."""

from __future__ import annotations

import pytest

from golden_records import GOLDEN, close, records

ON_GCN = {
    "scar": {"calibrator": "graph-scar"},  # what 0.1 called scar
    "ts-accumulated": {"calibrator": "ts-accumulated"},
    "ts-base-dropout": {"calibrator": "ts-base-dropout"},
    "ts-base-dropout-200": {"calibrator": "ts-base-dropout", "settings": {"steps": 200}},
    "ts-cagcn": {"calibrator": "ts-cagcn"},
    "ms-cagcn": {"calibrator": "ms-cagcn"},
    "cagcn-base-dropout": {"calibrator": "cagcn-code", "settings": {"epochs": 20}},
    "cagcn-paper-text": {"calibrator": "cagcn-gats", "settings": {"epochs": 20}},
    "scar-grid": {"calibrator": "scar-grid"},
    "scar-shared": {"calibrator": "scar-shared"},
    "scar-hop": {"calibrator": "scar-per-hop"},
    "scar-no-guard": {"calibrator": "scar-no-guard"},
    "scar-graph-no-guard": {"calibrator": "graph-scar-no-guard"},
    "au-ls": {"calibrator": "none", "training": {"loss": "au-ls"}},
    "negative-normal": {"calibrator": "ts", "training": {"init": "negative-normal"}},
}
ON_GAT = {
    "scar": ON_GCN["scar"],
    "scar-official-gat": {"calibrator": "scar-gat-code", "settings": {"alpha": 1e-3, "beta": 2e-3}},
}
PLAIN = {"uncal": {"calibrator": "none"}, "ts": {"calibrator": "ts"}}


@pytest.mark.parametrize(("backbone", "methods"), [("gcn", ON_GCN), ("gat", ON_GAT), ("gat-cagcn", PLAIN)])
def test_records_are_those_of_0_1(backbone, methods, tmp_path):
    for name, found in records(tmp_path, backbone, methods).items():
        close(found, GOLDEN[f"{backbone}/{name}"])
