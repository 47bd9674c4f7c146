"""A part of a table is published beside the rows that stand there; nothing that stands there is lost."""

from __future__ import annotations

import csv
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from small_preset import small
from small_session import FOLDERS

from graphcal.files import sha256_of
from graphcal.lab.bench import publication
from graphcal.lab.bench.archive import audit, write_archive
from graphcal.lab.bench.engines import Serial
from graphcal.lab.bench.presets import Preset
from graphcal.lab.bench.publication import publish, publish_archive, write_pages
from graphcal.lab.bench.session import Session

AXES = {"dataset": ["citeseer"], "labels_per_class": [20], "backbone": ["gcn", "gat", "sage"]}
RULE = {"where": {"method": "searched"}, "leave_out": "it is not wanted here"}


def preset(**changes: object) -> Preset:
    return small(axes=AXES, runs=2, set=[RULE], beside=["nll", "all_ece"], **changes)


@cache
def computed() -> Path:
    """The records of all three rows."""
    folder = Path(FOLDERS.enter_context(TemporaryDirectory()))
    Session.of(preset(), folder).run(Serial(), lambda: None)
    return folder


def part(only: str = "", runs: int | None = None, **changes: object) -> Session:
    return Session.of(preset(**changes), computed(), only, runs)


def put(session: Session, results: Path) -> str:
    """Publish, archive, and give the page."""
    publish(session.table(), f"graphcal bench small # {len(session.cells)} cells", results)
    session.remember()
    file = results.parent / f"{len(session.cells)}.zip"
    write_archive(session.store.folder, file)
    publish_archive(session.store, file, results)
    assert audit(file, results).wrong == []
    return (results / "small.md").read_text()


def body_of(page: str) -> str:
    """The page without how it was made."""
    return page.partition("## How it was made")[0]


@pytest.mark.slow
def test_two_parts_say_what_the_whole_says(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole" / "results", tmp_path / "parts" / "results"
    page = put(part(), whole)
    put(part("backbone=gat"), parts)
    kept = (parts / "small-runs.csv").read_text().splitlines()[1:]
    together = put(part("backbone=gcn,sage"), parts)
    assert body_of(together) == body_of(page)
    for file in ("small.csv", "small-runs.csv", "small-seconds.csv", "small-tests.csv"):
        assert (parts / file).read_text() == (whole / file).read_text(), file
    assert set(kept) <= set((parts / "small-runs.csv").read_text().splitlines())
    assert "*" in together.split("## NLL")[1].split("##")[0]  # the marks of a grid beside the first
    assert "it is not wanted here" in together


@pytest.mark.slow
def test_the_page_says_which_rows_are_from_before_and_how_those_were_made(tmp_path: Path) -> None:
    put(part("backbone=gat"), tmp_path / "results")
    page = put(part("backbone=gcn,sage"), tmp_path / "results")
    made = page.split("## How it was made")[1].split("\n## ")[0]
    first, second = made.split("Earlier, the rows that are not named above:")
    assert "Rows: gcn, sage. Computing time: " in first
    assert "graphcal bench small # 8 cells" in first
    assert "graphcal bench small # 4 cells" in second
    assert second.count("Computing time: ") == 1
    again = put(part(), tmp_path / "results")
    assert "Earlier" not in again


@pytest.mark.slow
def test_a_row_goes_only_for_one_with_as_many_runs(tmp_path: Path) -> None:
    page = put(part(), tmp_path / "results")
    lines = (tmp_path / "results" / "small-runs.csv").read_text()
    publish(part(runs=1).table(), "one run", tmp_path / "results")
    publish(part("method=ts").table(), "one method", tmp_path / "results")
    assert (tmp_path / "results" / "small-runs.csv").read_text() == lines
    assert (tmp_path / "results" / "small.md").read_text() == page
    publish(part().table(), "all", tmp_path / "results")
    assert "    all\n" in (tmp_path / "results" / "small.md").read_text()


def test_pages_are_written_anew_from_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same page with its marks and how it was made; a column that the preset no longer has goes, its runs stay."""
    page = put(part(), tmp_path)
    monkeypatch.setattr(publication, "preset_titles", lambda: {"small": "A small table", "another": ""})
    monkeypatch.setattr(publication, "read_preset", lambda _: preset())
    write_pages(tmp_path)
    assert (tmp_path / "small.md").read_text() == page
    monkeypatch.setattr(publication, "read_preset", lambda _: preset(methods=["ts"]))
    lines = (tmp_path / "small-runs.csv").read_text()
    write_pages(tmp_path)
    assert "Uncal." not in (tmp_path / "small.md").read_text()
    assert (tmp_path / "small-runs.csv").read_text() == lines


def test_the_page_says_its_commit(tmp_path: Path) -> None:
    head = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False)
    page = put(part("backbone=gat"), tmp_path)
    assert head.returncode or f", commit {head.stdout.strip()}" in page


@pytest.mark.slow
def test_an_archive_is_named_while_a_row_of_it_stands(tmp_path: Path) -> None:
    results = tmp_path / "results"
    put(part("backbone=gat"), results)
    put(part("backbone=gcn,sage"), results)
    gat, others = (sha256_of(tmp_path / name) for name in ("4.zip", "8.zip"))
    assert (results / "archives.sha256").read_text().splitlines() == [
        f"{gat}  4.zip  small",
        f"{others}  8.zip  small[citeseer-20-gcn,citeseer-20-sage]",
    ]
    put(part("backbone=gcn"), results)  # one of the two rows stands yet
    assert [line.split()[0] for line in (results / "archives.sha256").read_text().splitlines()[:2]] == [gat, others]
    put(part("backbone=sage"), results)
    assert others not in (results / "archives.sha256").read_text()
    put(part(), results)
    assert len((results / "archives.sha256").read_text().splitlines()) == 1


@pytest.mark.slow
def test_a_row_whose_marks_are_not_known_is_not_lost_but_refused(tmp_path: Path) -> None:
    publish(part("backbone=gat").table(), "gat", tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"citeseer 20 gat\), and small-tests.csv"):
        publish(part("backbone=gcn").table(), "gcn", tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.slow
def test_two_parts_of_a_list_say_what_the_whole_says(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    like = {
        "kind": "list",
        "against": "ts",
        "summary": {"metrics": ["nll"], "tested": ["nll"]},
    }
    publish(part(**like).table(), "all", whole)
    publish(part("backbone=gat", **like).table(), "gat", parts)
    kept = (parts / "small-runs.csv").read_text().splitlines()[1:]
    publish(part("backbone=gcn,sage", **like).table(), "others", parts)
    publish(part("backbone=gat", runs=1, **like).table(), "fewer runs", parts)
    assert body_of((parts / "small.md").read_text()) == body_of((whole / "small.md").read_text())
    for file in sorted(path.name for path in whole.iterdir() if path.suffix in (".csv", ".svg")):
        assert (parts / file).read_text() == (whole / file).read_text(), file
    assert set(kept) <= set((parts / "small-runs.csv").read_text().splitlines())
    assert (parts / "small-against.csv").exists()


@pytest.mark.slow
def test_a_figure_is_published_whole(tmp_path: Path) -> None:
    publish(part("backbone=gat", kind="runtime").table(), "gat", tmp_path)
    with pytest.raises(ValueError, match="a preset of the kind runtime is published whole: nothing was written"):
        publish(part("backbone=gcn", kind="runtime").table(), "gcn", tmp_path)
    publish(part(kind="runtime").table(), "all", tmp_path)
    with (tmp_path / "small-runs.csv").open() as stream:
        assert {line["backbone"] for line in csv.DictReader(stream)} == {"gcn", "gat", "sage"}


@pytest.mark.slow
def test_a_row_that_the_preset_no_longer_has_goes(tmp_path: Path) -> None:
    put(part(), tmp_path / "results")
    fewer = small(axes={**AXES, "backbone": ["gcn", "sage"]}, runs=2, set=[RULE], beside=["nll", "all_ece"])
    publish(Session.of(fewer, computed(), "backbone=gcn").table(), "gcn", tmp_path / "results")
    with (tmp_path / "results" / "small-runs.csv").open() as stream:
        assert [line["backbone"] for line in csv.DictReader(stream)] == ["gcn"] * 4 + ["sage"] * 4


def test_a_table_with_other_axes_is_refused(tmp_path: Path) -> None:
    put(part("backbone=gcn"), tmp_path / "results")
    runs = tmp_path / "results" / "small-runs.csv"
    runs.write_text(runs.read_text().replace("backbone", "network"))
    with pytest.raises(ValueError, match=r"small-runs\.csv has no column backbone"):
        publish(part("backbone=gcn").table(), "gcn", tmp_path / "results")
