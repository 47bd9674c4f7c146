"""Every form of a table holds what the table says, the same bytes each time."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from small_preset import small
from small_session import small_session

from graphcal.lab.bench.files import computing_seconds, csv_of_methods, csv_of_runs, latex, write_files
from graphcal.lab.bench.publication import publish
from graphcal.lab.bench.session import Session


@pytest.fixture
def session() -> Session:
    return small_session()


def test_tables_are_the_same_bytes_each_time_and_seconds_are_apart(session: Session, tmp_path: Path) -> None:
    first = {p.name: p.read_bytes() for p in write_files(session.table(), tmp_path / "a")}
    again = {p.name: p.read_bytes() for p in write_files(session.table(), tmp_path / "b")}
    assert first == again
    assert set(first) == {f"small{end}" for end in (".md", ".csv", "-runs.csv", ".tex", "-seconds.csv")}
    train = session.table().rows[0].entries["ts"].seconds("train")
    seconds = first["small-seconds.csv"].decode()
    assert f"{train:.4f}" in seconds
    assert seconds.count("\nciteseer,") == 3
    assert "seconds" not in first["small.md"].decode()


def test_csv_holds_every_method_and_every_run(session: Session) -> None:
    table = session.table()
    methods = list(csv.DictReader(io.StringIO(csv_of_methods(table))))
    assert [line["method"] for line in methods] == ["uncal", "ts", "searched"]
    assert float(methods[0]["ece_mean"]) == pytest.approx(table.rows[0].entries["uncal"].mean("ece"), abs=1e-5)
    assert methods[1]["published_mean"] == "99.00"
    runs = list(csv.DictReader(io.StringIO(csv_of_runs(table))))
    assert [line["seed"] for line in runs] == ["0", "1", "2", "3"] * 3
    assert 100 * float(runs[0]["ece"]) == pytest.approx(table.rows[0].entries["uncal"].values("ece")[0], abs=1e-3)


def test_latex(session: Session) -> None:
    text = latex(Session.of(small(methods=["uncal", "ts"]), session.store.folder).table())
    assert text.count("\\\\\n") == 2  # a head and a row
    assert r"\textbf{" in text
    assert r"\caption{A small table. ECE" in text
    assert r"\label{tab:small}" in text
    for name in ("table", "tabular"):
        assert text.index(rf"\begin{{{name}}}") < text.index(rf"\end{{{name}}}")


def test_a_figure_is_a_file_of_its_own_and_stands_in_the_pages(session: Session, tmp_path: Path) -> None:
    drawn = Session.of(small(kind="runtime"), session.store.folder).table()
    write_files(drawn, tmp_path)
    publish(drawn, "graphcal bench small", tmp_path / "results")
    assert (tmp_path / "small.svg").read_bytes() == (tmp_path / "results" / "small.svg").read_bytes()
    assert (tmp_path / "results" / "small.md").read_text().splitlines()[2] == "![A small table](small.svg)"
    assert "![A small table](small.svg)" in (tmp_path / "small.md").read_text()


def test_publishing_says_how_it_was_made(session: Session, tmp_path: Path) -> None:
    text = publish(session.table(), "graphcal bench small --runs 4", tmp_path)[0].read_text()
    assert "    graphcal bench small --runs 4\n" in text
    assert "Computing time: " in text
    assert str(tmp_path) not in text
    once = computing_seconds(session.table())
    records = [record for entry in session.table().rows[0].entries.values() for record in entry.records]
    each = sum(r.seconds["train"] + r.seconds["search"] + r.seconds["fit"] + r.seconds["apply"] for r in records)
    assert 0 < once < each  # uncal and ts share a training


def test_records_from_before_a_metric_was_measured_leave_its_columns_blank(session: Session) -> None:
    new, table = list(csv.DictReader(io.StringIO(csv_of_runs(session.table())))), session.table()
    assert all(line["worst_slice"] and line["all_coverage_at_5"] for line in new)
    for record in table.rows[0].entries["ts"].records:
        del record.result["test"]["eaurc"]
    methods = {line["method"]: line for line in csv.DictReader(io.StringIO(csv_of_methods(table)))}
    assert (methods["ts"]["eaurc_mean"], methods["ts"]["eaurc_sd"]) == ("", "")
    assert methods["ts"]["aurc_mean"]
    assert methods["uncal"]["eaurc_mean"]
    runs = [line for line in csv.DictReader(io.StringIO(csv_of_runs(table))) if line["method"] == "ts"]
    assert {line["eaurc"] for line in runs} == {""}
