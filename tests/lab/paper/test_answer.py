"""The answer: spot checks from the run files alone, and pages that say what the files give."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from graphcal.lab.paper.answer import answer, fill
from graphcal.lab.paper.details import detail_lines
from graphcal.lab.paper.run_files import RunFiles, printed_means

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results"


def means(table: str, method: str, metric: str, backbone: str) -> dict[tuple[str, ...], float]:
    """Mean over runs of every row of a network, by the csv module alone."""
    runs: dict[tuple[str, ...], list[float]] = defaultdict(list)
    with (RESULTS / f"{table}-runs.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["method"] == method and line["backbone"] == backbone:
                runs[line["dataset"], line["labels_per_class"]].append(float(line[metric]))
    return {row: fmean(values) for row, values in runs.items()}


def test_the_answer_is_five_short_sentences_and_six_numbers() -> None:
    text, table = answer(RESULTS).split("\n\n")
    sentences = text.split("\n")
    assert len(sentences) == 5
    assert all(len(sentence.split()) <= 25 for sentence in sentences)
    rows = [line.strip("| ").split(" | ") for line in table.split("\n")[2:]]
    assert len([cell for row in rows for cell in row[1:]]) == 6
    for row, method in zip(rows, ("scar-paper", "scar-recipe-ts")):
        for cell, metric, scale in zip(row[1:], ("ece", "nll", "accuracy"), (100, 1, 100)):
            mean = scale * fmean(means("table-gcn", method, metric, "gcn").values())
            assert float(cell) == pytest.approx(mean, abs=0.06 if metric == "accuracy" else 0.006), (method, metric)


def test_scar_is_above_its_published_value_in_most_rows() -> None:
    ours = [
        v for t, b in (("table-gcn", "gcn"), ("table-gat", "gat")) for v in means(t, "scar-paper", "ece", b).values()
    ]
    printed = [v for table in ("gcn", "gat") for v in printed_means(table, "scar", ("cora", "citeseer", "pubmed"))]
    gaps = [100 * a - b for a, b in zip(ours, printed, strict=True)]
    first = answer(RESULTS).split("\n")[0]
    assert f"but {sum(gap > 0 for gap in gaps)} lie above" in first
    assert f"by {fmean(gaps):.2f} on average" in first


def test_ece_and_nll_against_ts_on_the_same_network() -> None:
    line = detail_lines(RunFiles(RESULTS))[2]
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
    assert f"more accurate in {better} of {len(gaps)} rows" in detail_lines(RunFiles(RESULTS))[4]


def test_cost_in_trainings_of_a_gcn() -> None:
    spent: dict[tuple[str, str], float] = {}
    with (RESULTS / "fig-runtime-seconds.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            spent[line["dataset"], line["method"]] = sum(float(line[k]) for k in ("train", "search", "fit", "apply"))
    times = [spent[g, "scar-paper"] / spent[g, "uncal"] for g in ("cora", "citeseer", "pubmed")]
    line = detail_lines(RunFiles(RESULTS))[8]
    assert re.findall(r"\d+", line)[:2] == [f"{min(times):.0f}", f"{max(times):.0f}"]


def test_what_stands_between_the_marks_is_replaced() -> None:
    text = "a\n<!-- answer -->old<!-- /answer -->\nb\n"
    assert fill(text, "answer", "new", Path("x")) == "a\n<!-- answer -->\n\nnew\n\n<!-- /answer -->\nb\n"
    with pytest.raises(ValueError, match="x has no place for the claims"):
        fill(text, "claims", "new", Path("x"))
