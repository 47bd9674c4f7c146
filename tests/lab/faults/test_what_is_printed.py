"""Names from files are printed, never interpreted: by the terminal, a browser or LaTeX. And no file error is a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import graphcal
from graphcal.cli import app, main
from graphcal.lab.bench.files import _escaped
from graphcal.reports.html import with_policy
from graphcal.results import Results

ROWS = "".join(f"{k},{k % 2},{k},{k}\n" for k in range(40))
EDGES = "source,target\n" + "".join(f"{k},{(k + 2) % 40}\n" for k in range(40))


def test_a_column_named_as_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nodes.csv").write_text(f"id,label,x,y\n{ROWS}")
    (tmp_path / "edges.csv").write_text(
        EDGES.replace("target\n", "target,[/weight]\n").replace("\n", ",1\n")[:-2].replace("[/weight],1", "[/weight]")
        + "\n"
    )
    from graphcal.lab import pipeline

    def stop(*_: object, **__: object) -> None:
        raise ValueError("that was far enough")

    monkeypatch.setattr(pipeline, "run", stop)
    result = CliRunner().invoke(app, ["run", str(tmp_path), "--out", str(tmp_path / "out")])
    assert str(result.exception) == "that was far enough"
    assert "columns not used: [/weight]" in result.output


@pytest.mark.parametrize("where", ["file", "folder", "missing"])
def test_an_error_of_the_system_is_one_line(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.json").write_text('{"methods": {"none": {"ece": {"mean": 0.1}}}}')
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    out = {
        "file": tmp_path / "file" / "x.html",
        "folder": tmp_path / "folder",
        "missing": tmp_path / "file" / "a" / "b.html",
    }[where]
    monkeypatch.setattr(sys, "argv", ["graphcal", "report", str(tmp_path / "results.json"), "-o", str(out)])
    with pytest.raises(SystemExit) as stopped:
        main()
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.count("\n") == 1
    assert str(tmp_path) in error


def test_the_table_is_shown_even_if_it_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphcal.cli import results_table
    from graphcal.lab import pipeline
    from sample_results import results_with, sample_results

    monkeypatch.setattr(pipeline, "run", lambda *_, **__: results_with(sample_results()))
    monkeypatch.setattr(results_table, "replace", lambda results, **_: results)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Results, "save", full)
    result = CliRunner().invoke(app, ["run", "citeseer", "--out", str(tmp_path / "out")])
    assert "uncalibrated" in result.output
    assert "could not be written" in str(result.exception)
    assert "No space left on device" in str(result.exception)


def test_a_reader_that_has_enough_is_no_error() -> None:
    """`graphcal --help | head -1`."""
    code = "import sys\nfrom graphcal.cli import main\nsys.argv = ['graphcal', '--help']\nmain()"
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.close()
    assert b"Traceback" not in writer.stderr.read()
    writer.wait()


def test_a_notebook_escapes_what_a_record_says() -> None:
    from sample_results import results_with, sample_results

    evil = "<img src=x onerror=alert(1)>"
    record = dict(sample_results())
    results = results_with({**record, "methods": {evil: record["methods"]["ts"]}, "chosen_method": evil})
    assert "<img" not in results._repr_html_()
    assert "&lt;img src=x" in results._repr_html_()


def test_a_decision_escapes_the_name_of_its_class() -> None:
    import torch

    import graphcal

    evil = "<img src=x onerror=alert(1)>"
    log_probs = torch.tensor([[0.05, 0.95], [0.9, 0.1]]).log().repeat(500, 1)
    y, certify = log_probs.argmax(1), torch.arange(1000) % 4 < 2
    decision = graphcal.decide(log_probs, y, certify=certify, positive=evil, names=["fine", evil])
    assert decision.num_approved == 250
    assert "<img" not in decision._repr_html_()
    assert "&lt;img" in decision._repr_html_()


def test_latex_prints_every_mark() -> None:
    assert _escaped("a_b 5 % & #1 $x$ {y}") == r"a\_b 5 \% \& \#1 \$x\$ \{y\}"
    assert _escaped("\\input{x}~^\n") == r"\textbackslash{}input\{x\}\textasciitilde{}\textasciicircum{}"


def test_every_page_has_a_policy_that_fits_its_scripts() -> None:
    import base64
    import hashlib
    import re

    from sample_results import sample_results

    page = graphcal.report(sample_results()).html
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    scripts = re.findall(r"<script\b[^>]*>(.*?)</script>", page, flags=re.DOTALL)
    assert scripts
    for script in scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy[1]
    assert "unsafe-inline" not in policy[1].split("style-src-attr")[0]
    assert "script-src 'none'" in with_policy('<meta charset="utf-8">')
    with pytest.raises(ValueError, match="needs <meta charset"):
        with_policy("<html></html>")
