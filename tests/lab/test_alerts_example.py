"""Alerts on a real table: tolokers, as `examples/alerts.py` writes it."""

import json
import runpy
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from graphcal.cli import app


@pytest.mark.slow
def test_precision_on_tolokers_is_inside_its_interval(shared_data, tmp_path):
    """Random labels of real scores, with and without edges."""
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "alerts.py"))
    inside, tried = 0, 0
    for seed, edges in ((0, False), (1, False), (2, True)):
        truth = example["write"](tmp_path, seed)
        more = ["--edges", tmp_path / "edges.parquet"] if edges else []
        args = ["alerts", tmp_path / "scores.parquet", "--class", "banned", "--capacity", 400, *more]
        done = CliRunner().invoke(app, [*map(str, args), "--json", "--out", str(tmp_path / "out")])
        assert done.exit_code == 0, done.output
        record = json.loads(done.stdout)
        rank = pq.read_table(tmp_path / "out" / "alerts.parquet").column("rank").to_pylist()
        rank = np.array([k or 0 for k in rank])
        for row in record["thresholds"]:
            sent = (rank > 0) & (rank <= row["rows"])
            for name, value in (
                ("precision", truth[sent].mean()),
                ("recall", truth[sent].sum() / truth[rank > 0].sum()),
            ):
                tried += 1
                inside += row[name]["low"] - 1e-9 <= value <= row[name]["high"] + 1e-9
    assert inside / tried >= 0.9
