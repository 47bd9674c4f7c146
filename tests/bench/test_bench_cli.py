"""The command: lists, counts, runs, resumes after a kill, and says what failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench_small import small
from typer.testing import CliRunner

from graphcal.bench import outputs, presets, session
from graphcal.bench.engines import Serial
from graphcal.cli import app, main


@pytest.fixture(autouse=True)
def _small_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "preset", lambda name: small() if name == "small" else presets.preset(name))


def said(*arguments: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["bench", *arguments])
    assert found.exit_code == code, found.output
    return " ".join(found.output.split())


def test_list_names_the_presets() -> None:
    text = said("list")
    assert all(name in text for name in presets.preset_names())


def test_dry_run_counts_and_estimates(tmp_path: Path) -> None:
    out = str(tmp_path)
    assert "12 cells, 0 finished, 12 to do in 4 jobs with 4 trainings" in said("small", "--dry-run", "--out", out)
    assert not list(tmp_path.iterdir())
    said("small", "--engine", "serial", "--out", out, "--only", "method=uncal", "--runs", "2")
    text = said("small", "--dry-run", "--out", out, "--engine", "serial")
    assert "12 cells, 2 finished, 10 to do" in text
    assert "Time on 1 worker: 0 s" in text or "Time on 1 worker: 1 s" in text


def test_a_run_writes_tables_and_status_reads_them(tmp_path: Path) -> None:
    out = str(tmp_path)
    text = said("small", "--engine", "serial", "--out", out, "--runs", "2", "--publish", str(tmp_path / "results"))
    assert "6 of 6 cells finished, 0 failed." in text
    assert (tmp_path / "small.md").exists()
    assert "graphcal bench small --runs 2" in (tmp_path / "results" / "small.md").read_text()
    assert "small: 6 of 6 cells finished, 0 failed" in said("status", out)
    with pytest.raises(ValueError, match="already holds 6 finished cells"):
        CliRunner().invoke(app, ["bench", "small", "--out", out, "--no-resume"], catch_exceptions=False)


def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for arguments, message in (
        (["nothing"], "unknown preset 'nothing'; choose one of"),
        (["small", "--engine", "slurm"], "unknown engine 'slurm'; choose one of process, serial, ray"),
        (["small", "--only", "dataset=cora"], "small has dataset citeseer"),
        (["status", str(tmp_path / "none")], "holds no benchmark"),
    ):
        monkeypatch.setattr(sys, "argv", ["graphcal", "bench", *arguments, "--out", str(tmp_path / "none")])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        assert message in " ".join(capsys.readouterr().err.split())


KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from test_bench_cli import longer
from graphcal.bench.engines import Serial
if __name__ == "__main__":
    session = longer(sys.argv[1])
    print("ready", flush=True)
    session.run(Serial(), lambda: None)
"""


def longer(folder: Path) -> session.Session:
    base = {"protocol": "public", "block": 2, "training": {"epochs": 100, "hidden_channels": 16}}
    return session.Session.of(small(runs=8, base=base), folder)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_killed_at_any_moment_and_resumed_the_tables_are_the_same_bytes(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    for wanted in (0, 5):  # killed while the first models are trained, and when some cells are finished
        command = [sys.executable, str(script), str(tmp_path / "parts"), str(Path(__file__).parent)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        while child.poll() is None and len(list((tmp_path / "parts").glob("records/*.json"))) < wanted:
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        child.communicate()
    left = len(longer(tmp_path / "parts").unfinished())
    assert 0 < left <= 19
    for folder in ("parts", "whole"):
        one = longer(tmp_path / folder)
        one.run(Serial(), lambda: None)
        outputs.write_outputs(one.table(), one.store.folder)
    for end in (".md", ".csv", "-runs.csv", ".tex", ".html"):
        assert (tmp_path / "parts" / f"small{end}").read_bytes() == (tmp_path / "whole" / f"small{end}").read_bytes()
