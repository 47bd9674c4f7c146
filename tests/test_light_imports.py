"""Restoring and applying a calibration needs torch, PyG, numpy, scipy and safetensors, and nothing heavier."""

from __future__ import annotations

import subprocess
import sys

import graphcal as gc
from conftest import random_graph
from small_outputs import model_outputs, quick

NAMES = ("ts", "scar", "graph-scaling", "graph-scaling-keep", "isotonic", "gats")
HEAVY = ("matplotlib", "sklearn", "pyarrow", "duckdb", "typer", "rich", "ray", "pandas", "mlflow", "lightning")

SERVE = """
import sys
from importlib.machinery import PathFinder

found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in {heavy!r} else found(name, *rest)
import torch, graphcal as gc
from torch_geometric.nn import GCNConv

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = GCNConv(4, 3)
    def forward(self, x, edge_index):
        return self.last(x, edge_index).log_softmax(-1)

edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
for name in {names!r}:
    calibrate = gc.restore({folder!r} + "/" + name + ".safetensors")
    log_probs = gc.CalibratedModel(Net(), calibrate)(torch.randn(5, 4), edges)
    assert log_probs.shape == (5, 3)
assert not any(name.split(".")[0] in {heavy!r} for name in sys.modules)
print("served")
"""


def test_restoring_and_serving_imports_nothing_heavy(tmp_path):
    out = model_outputs(random_graph(classes=3), classes=3)
    for name in NAMES:
        gc.save(quick(name, epochs=2).fit(out, on=out.graph.val_mask), tmp_path / f"{name}.safetensors")
    code = SERVE.format(heavy=HEAVY, folder=str(tmp_path), names=NAMES)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "served", done.stderr[-2000:]
