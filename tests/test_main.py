"""``python -m graphcal``."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from graphcal.cli import app


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "graphcal", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("graphcal ")


def test_quiet_prints_errors_and_json_only(tmp_path):
    rng = np.random.default_rng(0)
    z = rng.standard_normal((300, 3))
    table = {f"logit_{k}": 3 * z[:, k] for k in range(3)}
    pq.write_table(pa.table({**table, "label": (z + rng.gumbel(size=z.shape)).argmax(1)}), tmp_path / "p.parquet")
    run, folder = CliRunner().invoke, str(tmp_path / "out")
    for command in (
        ["calibrate", str(tmp_path / "p.parquet"), "--calibrator", "ts", "--out", folder],
        ["check", folder],
    ):
        loud, quiet = (run(app, [*option, *command]) for option in ([], ["--quiet"]))
        assert loud.output
        assert quiet.output == ""
        assert loud.exit_code == quiet.exit_code
    scored = ["--quiet", "score", folder, str(tmp_path / "p.parquet"), "--out", str(tmp_path / "scored")]
    assert run(app, scored).output == ""
    assert json.loads(run(app, [*scored, "--json"]).output)["rows"] == 300
    assert run(app, ["--quiet", "check", folder, "--bins", "none"]).exit_code == 2
