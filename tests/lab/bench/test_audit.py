"""An archive holds what methods said of every test node; an audit measures everything again and names what differs."""

from __future__ import annotations

import csv
import json
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from small_session import small_session
from typer.testing import CliRunner

from graphcal.cli import app
from graphcal.files import sha256_of
from graphcal.lab.bench.archive import audit, read_archive, write_archive
from graphcal.lab.bench.comparisons import best_of
from graphcal.lab.bench.files import csv_of_runs


@pytest.fixture
def results(tmp_path: Path) -> tuple[Path, Path]:
    """A finished benchmark and what was published of it: the archive, and the folder of tables."""
    session = small_session()
    session.remember()
    folder, published = tmp_path / "bench", tmp_path / "published"
    shutil.copytree(session.store.folder, folder)
    published.mkdir()
    (published / "small-runs.csv").write_text(csv_of_runs(session.table()))
    result = CliRunner().invoke(app, ["bench", "archive", str(folder), "--publish", str(published)])
    assert result.exit_code == 0, result.output
    return folder / "archive.zip", published


@pytest.mark.slow
def test_the_same_records_give_the_same_bytes(results: tuple[Path, Path], tmp_path: Path) -> None:
    file, published = results
    assert write_archive(file.parent, tmp_path / "again.zip") == sha256_of(file)
    assert (published / "archives.sha256").read_text().split() == [sha256_of(file), "archive.zip", "small"]
    store = read_archive(file, tmp_path / "unpacked")
    assert store.finished() == small_session().store.finished() & small_session().cells.keys()


@pytest.mark.slow
def test_every_score_and_every_test_is_measured_again(results: tuple[Path, Path]) -> None:
    file, published = results
    report = audit(file, published)
    assert report.wrong == []
    assert report.checked >= 12 * (8 + 8) + 6 * 2  # twelve records and lines, six paired tests
    with (published / "small-tests.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    session = small_session()
    keys = {m: entry.keys for m, entry in session.table().rows[0].entries.items()}
    best, others = best_of(keys, session.store, "nll")
    ours = {line["method"]: line for line in lines if line["metric"] == "nll"}
    assert {line["best"] for line in ours.values()} == {best}
    assert {m: float(line["p"]) for m, line in ours.items()} == pytest.approx(
        {m: d.p for m, d in others.items()}, abs=1e-6
    )


@pytest.mark.slow
def test_a_changed_number_is_named(results: tuple[Path, Path]) -> None:
    file, published = results
    path = published / "small-runs.csv"
    lines = list(csv.DictReader(path.open()))
    lines[3]["ece"] = f"{float(lines[3]['ece']) + 1e-4:.6f}"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    tests = published / "small-tests.csv"
    tests.write_text(re.sub(r"(nll,uncal,\w+,[\d.-]+),[\d.]+", r"\1,0.900000", tests.read_text()))
    wrong = audit(file, published).wrong
    assert len(wrong) == 2
    assert "small-runs.csv" in wrong[0]
    assert "ece" in wrong[0]
    assert "small-tests.csv" in wrong[1]
    result = CliRunner().invoke(app, ["bench", "audit", str(file), "--against", str(published)])
    assert result.exit_code == 1
    assert "2 come out otherwise" in result.output


@pytest.mark.slow
def test_a_record_that_says_more_than_its_nodes_is_named(results: tuple[Path, Path], tmp_path: Path) -> None:
    file, published = results
    store = read_archive(file, tmp_path / "unpacked")
    key = sorted(store.finished())[0]
    record = json.loads(store.record_path(key).read_text())
    record["result"]["test"]["nll"] -= 0.1
    store.record_path(key).write_text(json.dumps(record))
    write_archive(store.folder, file)
    wrong = audit(file, published).wrong
    assert any("SHA-256" in line for line in wrong)
    assert any(line.startswith(f"record {key}, nll") for line in wrong)


def test_a_member_that_does_not_belong_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        archive.writestr("../outside.json", "{}")
    with pytest.raises(ValueError, match="'../outside.json' does not belong"):
        read_archive(tmp_path / "odd.zip", tmp_path / "unpacked")
    with pytest.raises(ValueError, match="holds no benchmark"):
        write_archive(tmp_path, tmp_path / "none.zip")
