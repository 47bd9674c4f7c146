"""The variants that imitate published code give what 0.1 gave."""

from __future__ import annotations

import pytest

from golden_records import GOLDEN, close, records

ON_GCN = {
    "ts-accumulated": {"calibrator": "ts", "settings": {"solver": "accumulated"}},
    "ts-base-dropout": {"calibrator": "ts", "settings": {"solver": "base-dropout"}},
    "ts-base-dropout-200": {"calibrator": "ts", "settings": {"solver": "base-dropout-200"}},
    "ts-cagcn": {"calibrator": "ts", "settings": {"solver": "cagcn"}},
    "ms-cagcn": {"calibrator": "ms", "settings": {"solver": "cagcn"}},
    "cagcn-base-dropout": {"calibrator": "cagcn", "settings": {"epochs": 20, "base_dropout": True}},
    "cagcn-paper-text": {"calibrator": "cagcn", "settings": {"epochs": 20, "link": "softplus", "margin": 0.0}},
    "au-ls": {"calibrator": "none", "training": {"loss": "au-ls"}},
    "negative-normal": {"calibrator": "ts", "training": {"init": "negative-normal"}},
}
ON_GAT = {"scar-official-gat": {"calibrator": "scar-gat-code", "settings": {"alpha": 1e-3, "beta": 2e-3}}}
PLAIN = {"uncal": {"calibrator": "none"}, "ts": {"calibrator": "ts"}}


@pytest.mark.parametrize(("backbone", "methods"), [("gcn", ON_GCN), ("gat", ON_GAT), ("gat-cagcn", PLAIN)])
def test_records_are_those_of_0_1(backbone, methods, tmp_path):
    for name, found in records(tmp_path, backbone, methods).items():
        close(found, GOLDEN[f"{backbone}/{name}"])
