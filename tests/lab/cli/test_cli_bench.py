"""`graphcal bench`: lists, counts, runs, and says what failed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphcal.cli import app, main
from graphcal.lab.bench import presets

SMALL = str(Path(__file__).parents[1] / "bench" / "small.toml")


def output_of(*arguments: str, code: int = 0) -> str:
    shown = CliRunner().invoke(app, ["bench", *arguments])
    assert shown.exit_code == code, shown.output
    return " ".join(shown.output.split())


def test_list_names_the_presets() -> None:
    text = output_of("list")
    assert all(name in text for name in presets.preset_titles())


def test_list_says_what_to_do_when_none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "PACKAGES", {})
    assert output_of("list").startswith("No preset is installed. `graphcal bench FILE.toml` takes one of your own")


def test_dry_run_counts_and_estimates(tmp_path: Path) -> None:
    out = str(tmp_path)
    text = output_of(SMALL, "--dry-run", "--out", out)
    assert "12 cells, 0 finished, 12 to do in 4 jobs with 4 trainings" in text
    assert "a guess" in text
    assert not list(tmp_path.iterdir())
    output_of(SMALL, "--engine", "serial", "--out", out, "--only", "method=uncal", "--runs", "2")
    text = output_of(SMALL, "--dry-run", "--out", out, "--engine", "serial")
    assert "12 cells, 2 finished, 10 to do" in text
    assert "Time on 1 worker: about 0 s" in text or "Time on 1 worker: about 1 s" in text
    assert "a guess" not in text


def test_a_run_writes_tables_and_status_reads_them(tmp_path: Path) -> None:
    out = str(tmp_path)
    text = output_of(SMALL, "--engine", "serial", "--out", out, "--runs", "2", "--publish", str(tmp_path / "results"))
    assert "6 of 6 cells finished, 0 failed." in text
    assert "Cells with a published value: 2; equivalent to it (two one-sided tests, within 1 point, 5%): " in text
    assert (tmp_path / "small.md").exists()
    assert "small.toml --runs 2" in (tmp_path / "results" / "small.md").read_text()
    assert "small: 6 of 6 cells finished, 0 failed" in output_of("status", out)
    with pytest.raises(ValueError, match="already holds 6 finished cells"):
        CliRunner().invoke(app, ["bench", SMALL, "--out", out, "--no-resume"], catch_exceptions=False)


def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, message in (
        (["nothing"], "unknown preset 'nothing'; "),
        ([SMALL, "--engine", "slurm"], "unknown engine 'slurm'; choose one of process, serial, ray"),
        ([SMALL, "--only", "dataset=cora"], "small has dataset citeseer"),
        (["status", str(tmp_path / "none")], "holds no benchmark"),
    ):
        monkeypatch.setattr(sys, "argv", ["graphcal", "bench", *arguments, "--out", str(tmp_path / "none")])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        assert message in " ".join(capsys.readouterr().err.split())
