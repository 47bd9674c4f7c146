"""The benchmark of a big graph, on a small one: every stage is there."""

import importlib.util
import re
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "big_graph.py"


def test_a_small_graph_goes_through_every_stage(capsys, monkeypatch):
    spec = importlib.util.spec_from_file_location("big_graph", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    sizes = ["--nodes", "1500", "--edges", "9000", "--epochs", "20", "--labels-per-class", "20", "--calibrators", "ts"]
    monkeypatch.setattr(sys, "argv", ["big_graph.py", *sizes])
    script.main()
    printed = capsys.readouterr().out
    for stage in (
        "write the files",
        "read",
        "train on mini-batches",
        "observe",
        "ts: fit, apply, measure",
    ):
        assert re.search(rf"\| {re.escape(stage)} \| \d+\.\d \| \d+\.\d \| \d+\.\d\d \|", printed), stage
    assert "1,500 nodes" in printed
    accuracy, _, nll = re.search(r"\| ts \| (\S+) \| (\S+) \| (\S+) \|", printed).groups()
    assert float(accuracy) > 30
    assert float(nll) < 1.61  # better than a guess among five
