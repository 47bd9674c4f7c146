"""The rule of verdicts, the evidence it is applied to, and the committed page."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from graphcal.lab.paper import claims as module
from graphcal.lab.paper.answer import difference, grid_by_graph
from graphcal.lab.paper.claims import (
    HOLDS,
    KINDS,
    NOT,
    OPEN,
    PART,
    UNTESTED,
    always,
    average,
    count_verdicts,
    exact,
    find,
    judge,
    printed_means,
    read_claims,
)
from graphcal.lab.paper.run_files import RunFiles

RESULTS = Path(__file__).parents[3] / "results"
CLAIMS = read_claims()["claim"]


@pytest.mark.parametrize(
    ("agree", "rows", "word"),
    [
        (18, 18, HOLDS),
        (17, 18, PART),
        (13, 18, PART),
        (12, 18, NOT),
        (0, 18, NOT),
        (2, 3, NOT),
        (3, 3, HOLDS),
        (3, 4, PART),
    ],
)
def test_always_fails_from_a_third_against_it(agree: int, rows: int, word: str) -> None:
    verdict = always([1.0] * agree + [-1.0] * (rows - agree))
    assert (verdict.word, verdict.share) == (word, f"{agree}/{rows}")


def test_a_tie_does_not_speak_for_a_claim() -> None:
    assert always([0.0, 1.0, 1.0]).word == NOT


@pytest.mark.parametrize(
    ("gaps", "word"),
    [
        ([1.0, 1.1, 0.9], HOLDS),
        ([-1.0, -1.1, -0.9], NOT),
        ([1.0, -0.9, 0.2], OPEN),
        ([5.0, 0.1, 0.2], OPEN),
        ([2.0], OPEN),
    ],
)
def test_an_average_is_judged_by_its_interval_over_graphs(gaps: list[float], word: str) -> None:
    verdict = average(gaps)
    assert verdict.word == word
    if len(gaps) > 1:
        low, high = stats.ttest_1samp(gaps, 0.0).confidence_interval(0.95)
        assert f"[{low:+.2f}, {high:+.2f}], {len(gaps)} graphs" in verdict.share


def test_exact_claims_are_judged_by_their_parts() -> None:
    assert [exact(parts).word for parts in ([True, True], [True, False], [False, False])] == [HOLDS, PART, NOT]


def test_the_kind_of_a_claim_follows_from_its_words() -> None:
    for claim in CLAIMS:
        assert claim["kind"] in KINDS
        absolute = re.search(r"always|consistently|best performance|in all datasets", claim["says"])
        if absolute and claim["kind"] != "untested":
            assert claim["kind"] == "always", claim["says"]
        if "on average" in claim["says"]:
            assert claim["kind"] in ("average", "exact"), claim["says"]
    with pytest.raises(ValueError, match="kind 'mostly' is not one of always"):
        judge({"where": "Sec. 1", "says": "", "kind": "mostly"}, RunFiles(RESULTS))


def test_every_claim_has_figures_and_a_command() -> None:
    runs = RunFiles(RESULTS)
    for claim in CLAIMS:
        text, verdict = judge(claim, runs)
        assert text, claim["says"]
        assert (verdict.word == UNTESTED) == (claim["kind"] == "untested") == ("command" not in claim)
    assert sum(int(n) for n in re.findall(r"\d+", count_verdicts(runs))) == len(CLAIMS) > 35


def small_runs(folder: Path, values: dict[tuple[str, str, str], float], axis: str = "backbone") -> RunFiles:
    """Runs with an ECE for each (graph, value of an axis, method)."""
    lines = [f"dataset,{axis},method,split,seed,ece", *(f"{','.join(at)},0,0,{v}" for at, v in values.items())]
    (folder / "small-runs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return RunFiles(folder)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"small": [{"table": "small"}], "cora": [{"table": "small", "dataset": "cora"}]}
    monkeypatch.setattr(module, "read_claims", lambda: {"rows": rows})


@pytest.mark.usefixtures("small")
def test_evidence_is_positive_where_a_row_speaks_for_the_claim(tmp_path: Path) -> None:
    runs = small_runs(tmp_path, {
        ("cora", "gcn", "scar"): 0.03, ("cora", "gcn", "ts"): 0.05, ("cora", "gcn", "ms"): 0.02,
        ("pubmed", "gcn", "scar"): 0.06, ("pubmed", "gcn", "ts"): 0.05, ("pubmed", "gcn", "ms"): 0.09,
    })  # fmt: skip
    item = {"label": "ECE", "on": "small", "a": "scar", "b": "ts", "metric": "ece", "better": "lower"}

    def gaps(**change: object) -> list[float]:
        return [round(gap, 6) for _, gap in find(runs, {**item, **change})[0]]

    assert gaps() == [2.0, -1.0]
    assert gaps(better="higher") == [-2.0, 1.0]
    assert gaps(b=["ts", "ms"]) == [-1.0, -1.0]  # against the lowest of them
    assert gaps(on="cora") == [2.0]
    assert gaps(times=2.0) == [7.0, 4.0]
    assert gaps(b=[], limit=4.0) == [1.0, -2.0]
    assert "in 1 of 2 (-0.50 on average)" in find(runs, item)[1]


@pytest.mark.usefixtures("small")
def test_curves_are_judged_by_their_shape(tmp_path: Path) -> None:
    heights = {"cora": (0.3, 0.2, 0.1), "citeseer": (0.3, 0.1, 0.2), "pubmed": (0.1, 0.2, 0.3)}
    values = {(g, x, "a"): y for g, of in heights.items() for x, y in zip(("5e-3", "5e-4", "5e-5"), of)}
    values |= {(g, x, "b"): y for g in heights for x, y in zip(("5e-3", "5e-4", "5e-5"), (0.2, 0.1, 0.3))}
    runs = small_runs(tmp_path, values, "decay")

    def signs(shape: str) -> list[bool]:
        item = {"label": "", "on": "small", "a": "a", "b": "b", "metric": "ece", "shape": shape, "axis": "decay"}
        return [gap > 0 for _, gap in find(runs, item)[0]]

    assert signs("falls") == [True, False, False]
    assert signs("ends lower") == [True, True, False]
    assert signs("argmin") == [False, False, True]  # lowest at 5e-5, 5e-4, 5e-3; b at 5e-4


def test_the_papers_own_averages() -> None:
    """Its text says 4.56 and 1.5 points; the mean of its own 24 differences says otherwise."""
    ts = [
        *(printed_means("gcn", "ts") - printed_means("gcn", "scar")),
        *(printed_means("gat", "ts") - printed_means("gat", "scar")),
    ]
    assert len(ts) == 24
    assert fmean(ts) == pytest.approx(2.96, abs=0.005)
    assert printed_means("gcn", "ts", ["cora"]).tolist() == [4.88, 4.17, 3.55]
    number = next(c for c in CLAIMS if "4.56" in c["says"])
    assert judge(number, RunFiles(RESULTS))[1].word == NOT


def test_scar_against_ts_is_counted_on_the_same_network() -> None:
    """Rows counted here from the run files alone."""
    gaps = []
    for table, backbone in (("table-gcn", "gcn"), ("table-gat", "gat")):
        ece: dict[tuple[str, str], dict[str, list[float]]] = {}
        with (RESULTS / f"{table}-runs.csv").open(encoding="utf-8") as file:
            for line in csv.DictReader(file):
                if line["backbone"] == backbone:
                    row = ece.setdefault((line["dataset"], line["labels_per_class"]), {})
                    row.setdefault(line["method"], []).append(float(line["ece"]))
        gaps += [np.mean(of["scar-paper"]) - np.mean(of["scar-recipe-ts"]) for of in ece.values()]
    verdict = judge(next(c for c in CLAIMS if "always outperforms" in c["says"]), RunFiles(RESULTS))[1]
    assert verdict.share == f"{sum(gap < 0 for gap in gaps)}/{len(gaps)}"
    assert verdict.word == NOT


def test_far_nodes_are_more_under_confident() -> None:
    with (RESULTS / "far-nodes-runs.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        gap = float(line["accuracy"]) - float(line["confidence"])
        assert float(line["signed_gap"]) == pytest.approx(gap, abs=2e-6)
    claim = next(c for c in CLAIMS if "farther from the training nodes" in c["says"])
    assert judge(claim, RunFiles(RESULTS))[1].share == "3/3"


def test_graph_by_graph_is_the_mean_of_its_label_rates() -> None:
    runs = RunFiles(RESULTS)
    gap = difference(runs, "table-gcn", "scar-paper", "scar-recipe-ts", "ece", "citeseer", "gcn")
    by_row = runs.gaps("table-gcn", "scar-paper", "scar-recipe-ts", "ece", dataset="citeseer")
    assert gap.value == pytest.approx(by_row.mean())
    assert gap.p < 0.05
    assert len(grid_by_graph(runs).body) == 6


def test_run_files_are_read_by_row_and_method(tmp_path: Path) -> None:
    (tmp_path / "table-x-runs.csv").write_text(
        "dataset,backbone,method,split,seed,ece,all_ece\n"
        "cora,gcn,ts,0,0,0.01,0.02\ncora,gcn,ts,0,1,0.03,0.02\ncora,gcn,none,0,0,0.09,0.1\npubmed,gcn,ts,0,0,0.05,0.02\n"
    )
    runs = RunFiles(tmp_path)
    assert runs.values("table-x", "ts", "ece", dataset="cora").tolist() == pytest.approx([1.0, 3.0])
    assert runs.means("table-x", "ts", "ece").tolist() == pytest.approx([2.0, 5.0])
    assert runs.gaps("table-x", "none", "ts", "ece").tolist() == pytest.approx([7.0])
    assert runs.rows("table-x", "ts", dataset=["pubmed"]) == [(("dataset", "pubmed"), ("backbone", "gcn"))]
