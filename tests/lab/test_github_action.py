"""The example of a GitHub workflow: it parses, it has the shape GitHub reads, and its commands run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from click.testing import Result
from typer.testing import CliRunner

from graphcal.cli import app

FILE = Path(__file__).parents[2] / "examples" / "github-action.yml"
WORKFLOW = yaml.load(FILE.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # BaseLoader: `on` stays a word
STEPS = WORKFLOW["jobs"]["honest"]["steps"]
COMMANDS = [step["run"].partition("|")[0] for step in STEPS if step.get("run", "").startswith("graphcal")]


def write_predictions(path: Path, scale: float) -> None:
    """4,000 rows with labels; ``scale`` 1 is honest, more is over-confident."""
    rng = np.random.default_rng(0)
    z = 5 * rng.standard_normal((4000, 3))
    y = (z + rng.gumbel(size=z.shape)).argmax(1)
    pq.write_table(pa.table({"label": y, **{f"logit_{k}": scale * z[:, k] for k in range(3)}}), path)


def run(command: str) -> Result:
    program, *arguments = shlex.split(command)
    assert program == "graphcal"
    return CliRunner().invoke(app, arguments)


def test_the_workflow_has_the_shape_github_reads():
    assert {"name", "on", "jobs"} <= set(WORKFLOW)
    assert WORKFLOW["jobs"]["honest"]["runs-on"] == "ubuntu-latest"
    for step in STEPS:
        assert ("uses" in step) != ("run" in step)
        assert "@v" in step.get("uses", "@v")
    assert [command.split()[1] for command in COMMANDS] == ["check", "decide", "decide"]


def test_honest_predictions_pass_and_are_decided(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_predictions(tmp_path / "predictions.parquet", scale=1)
    for command in COMMANDS:
        done = run(command)
        assert done.exit_code == 0, done.output
    assert "can be decided automatically" in json.loads(done.stdout)["sentence"]  # what jq takes out of --json
    assert (tmp_path / "decisions.parquet").exists()


def test_an_over_confident_model_fails_the_gate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_predictions(tmp_path / "predictions.parquet", scale=3)
    assert run(COMMANDS[0]).exit_code == 1
