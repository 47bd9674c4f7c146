"""The examples for users run."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_serving_one_node_is_serving_the_graph(capsys):
    runpy.run_path(str(EXAMPLES / "serve.py"), run_name="__main__")
    whole, alone, change = capsys.readouterr().out.splitlines()
    assert whole.split(":")[1].split() == alone.split(":")[1].split()
    assert float(change.split(":")[1]) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("your_model", "the shipped model agrees on 332"),
        ("rare_class", "graph-scaling: in fact "),
        ("compare_methods", "graph-scaling minus ts, first seed: NLL"),
        ("neighbor_loader", "batches by Neighbor"),
        ("warehouse_table", "│ labelled │   975 │"),
    ],
)
def test_the_example_runs_as_a_script(name, line, tmp_path):
    command = [sys.executable, EXAMPLES / f"{name}.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert line in done.stdout
