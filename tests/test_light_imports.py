"""Restoring and applying a calibration needs torch, PyG, numpy, scipy and safetensors, and nothing heavier."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import graphcal
from conftest import random_graph
from small_outputs import model_outputs, quick

NAMES = ("ts", "scar", "graph-scaling", "graph-scaling-keep", "isotonic")
HEAVY = ("matplotlib", "sklearn", "pyarrow", "duckdb", "typer", "rich", "ray", "pandas", "mlflow", "lightning")

SERVE = """
import sys
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in {heavy!r} else find_spec(name, *rest)
import torch, graphcal
from torch_geometric.nn import GCNConv

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = GCNConv(6, 3)
    def forward(self, x, edge_index):
        return self.last(x, edge_index).log_softmax(-1)

edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
for name in {names!r}:
    calibrate = graphcal.restore({folder!r} + "/" + name + ".safetensors")
    log_probs = graphcal.CalibratedModel(Net(), calibrate)(torch.randn(5, 6), edges)
    assert log_probs.shape == (5, 3)
assert not any(name.split(".")[0] in {heavy!r} for name in sys.modules)
print("served")
"""


@pytest.mark.slow
def test_restoring_and_serving_imports_nothing_heavy(tmp_path):
    out = model_outputs(random_graph(classes=3), classes=3)
    for name in NAMES:
        graphcal.save(quick(name, epochs=2).fit(out, on=out.graph.val_mask), tmp_path / f"{name}.safetensors")
    code = SERVE.format(heavy=HEAVY, folder=str(tmp_path), names=NAMES)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "served", done.stderr[-2000:]


COMMAND = """
import sys
from typer.testing import CliRunner
from graphcal.cli import app

done = CliRunner().invoke(app, {arguments!r})
assert not isinstance(done.exception, Exception), done.exception
ours = [name for name in sys.modules if name.split(".")[0] == "graphcal" and not name.startswith("graphcal.cli")]
heavy = [name for name in ("torch_geometric", "scipy.stats", "sklearn", "jinja2", "matplotlib") if name in sys.modules]
print(len(ours), heavy)
"""


@pytest.mark.slow_cases("check", "score")
@pytest.mark.parametrize("command", ["check", "decide", "score"])
def test_commands_on_tables_do_not_import_pyg(command, tmp_path):
    """pandas is not counted: pyarrow imports it, where it is installed, to make NumPy arrays."""
    rng = np.random.default_rng(0)
    p = 1 - 0.5 * rng.random(2000) ** 3
    labels = np.where(rng.random(2000) < 0.3, (rng.random(2000) > p).astype(int), -1)
    rows = "".join(f"{a},{1 - a},{'' if y < 0 else y}\n" for a, y in zip(p, labels))
    (tmp_path / "p.csv").write_text(f"prob_0,prob_1,label\n{rows}")
    more = ["-o", str(tmp_path / "d.parquet")] if command == "decide" else []
    if command == "score":
        calibrated = graphcal.calibrate(np.stack([p, 1 - p], 1), labels, kind="probs", calibrator="graph-scaling")
        graphcal.save(calibrated.calibration, tmp_path / "c.safetensors")
        arguments = [
            command,
            str(tmp_path / "c.safetensors"),
            str(tmp_path / "p.csv"),
            "--out",
            str(tmp_path / "scored"),
        ]
    else:
        arguments = [command, str(tmp_path / "p.csv"), *more]
    code = COMMAND.format(arguments=arguments)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    count, heavy = done.stdout.split(" ", 1)
    assert heavy.strip() == "[]"
    assert int(count) <= (90 if command == "score" else 60)  # score loads the methods
