"""The answer: spot checks from the run files alone, and pages that say what the files give."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from graphcal.lab.paper.answer import answer, fill, filled, main, ten_lines
from graphcal.lab.paper.run_files import RunFiles

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results"
PAGES = (RESULTS / "README.md", ROOT / "docs" / "reproduction.md")


def means(table: str, method: str, metric: str, backbone: str) -> dict[tuple[str, ...], float]:
    """Mean over runs of every row of a network, by the csv module alone."""
    runs: dict[tuple[str, ...], list[float]] = defaultdict(list)
    with (RESULTS / f"{table}-runs.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["method"] == method and line["backbone"] == backbone:
                runs[line["dataset"], line["labels_per_class"]].append(float(line[metric]))
    return {row: fmean(values) for row, values in runs.items()}


def test_the_pages_are_up_to_date() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text == filled(page, RESULTS), f"run python -m graphcal.lab.paper.answer {page}"


def test_the_heading_counts_the_published_numbers() -> None:
    assert answer(RESULTS).split("could be tested")[0].endswith("238 of the paper's 306 table numbers ")


def test_ece_and_nll_against_ts_on_the_same_network() -> None:
    line = ten_lines(RunFiles(RESULTS))[2]
    for metric, scale, digits in (("ece", 100, 2), ("nll", 1, 3)):
        scar, ts = (
            scale * fmean(means("table-gcn", m, metric, "gcn").values()) for m in ("scar-paper", "scar-recipe-ts")
        )
        assert f"{scar:.{digits}f} against {ts:.{digits}f}" in line


def test_accuracy_lost_against_the_same_recipe() -> None:
    gaps = []
    for table, backbone in (("table-gcn", "gcn"), ("table-gat", "gat")):
        scar, recipe = (means(table, m, "accuracy", backbone) for m in ("scar-paper", "scar-recipe"))
        gaps += [recipe[row] - scar[row] for row in scar]
    better = sum(gap > 0 for gap in gaps)
    assert f"more accurate in {better} of {len(gaps)} rows" in ten_lines(RunFiles(RESULTS))[4]


def test_cost_in_trainings_of_a_gcn() -> None:
    spent: dict[tuple[str, str], float] = {}
    with (RESULTS / "fig-runtime-seconds.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            spent[line["dataset"], line["method"]] = sum(float(line[k]) for k in ("train", "search", "fit", "apply"))
    times = [spent[g, "scar-paper"] / spent[g, "uncal"] for g in ("cora", "citeseer", "pubmed")]
    line = ten_lines(RunFiles(RESULTS))[8]
    assert re.findall(r"\d+", line)[:2] == [f"{min(times):.0f}", f"{max(times):.0f}"]


def test_what_stands_between_the_marks_is_replaced(tmp_path: Path) -> None:
    text = "a\n<!-- answer -->old<!-- /answer -->\nb\n"
    assert fill(text, "answer", "new", Path("x")) == "a\n<!-- answer -->\n\nnew\n\n<!-- /answer -->\nb\n"
    with pytest.raises(ValueError, match="x has no place for the claims"):
        fill(text, "claims", "new", Path("x"))
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(SystemExit, match="page.md is not what the committed files give"):
        main([page], RESULTS, check=True)
    main([page], RESULTS, check=False)
    main([page], RESULTS, check=True)
