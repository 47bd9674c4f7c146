"""Results are read, put together, shown and written whole."""

import json
import subprocess
import sys

import pytest

import graphcal
from graphcal.reports import build, combine, read_results
from sample_results import sample_results


@pytest.fixture(scope="module")
def results():
    return sample_results()


def test_files_that_hold_no_results_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no results at"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text("{nonsense")
    with pytest.raises(ValueError, match="is not JSON"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(ValueError, match="holds no results"):
        read_results(tmp_path)


def test_a_report_is_a_value(results, tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(results))
    shown = graphcal.report(tmp_path)
    assert shown.html == graphcal.report(results).html == build(results)
    assert shown.write(tmp_path / "deep" / "r.html").read_text(encoding="utf-8") == shown.html
    assert shown._repr_html_().startswith("<iframe srcdoc=")
    assert "<script" not in shown._repr_html_()


def test_runs_of_one_model_share_a_table_and_others_are_named_apart(results):
    more = {**results, "methods": {"gats": results["methods"]["scar"]}}
    assert list(combine([results, more])["methods"]) == ["none", "ts", "scar", "sharp", "gats"]
    other = {**results, "dataset": "cora"}
    assert "cora gcn: ts" in combine([results, other])["methods"]
    assert len(build(combine([results, other]))) < 1_000_000
    together = combine([results, other])
    assert together["verdict"].count(results["verdict"]) == 2  # each run keeps its own
    assert together["methods"]["cora gcn: ts"]["title"] == "cora gcn: Temperature scaling"
    assert 'id="choice-note"' not in build(together)


def test_a_page_that_cannot_be_written_leaves_the_old_one(results, tmp_path, monkeypatch):
    path = graphcal.report(results).write(tmp_path / "report.html")
    before = path.read_text(encoding="utf-8")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        graphcal.report({**results, "dataset": "other"}).write(path)
    assert path.read_text(encoding="utf-8") == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_the_function_is_there_after_a_bare_import():
    code = "import graphcal; graphcal.report({'methods': {'none': {'ece': 0.1}}}); import graphcal.reports; graphcal.report"
    subprocess.run([sys.executable, "-c", code], check=True)
