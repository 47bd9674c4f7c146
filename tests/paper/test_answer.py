"""The ten lines: every number of them is computed here once more, from the run files alone, without the module's code."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from graphcal.files import read_toml
from graphcal.paper.answer import answer, fill, filled, main, ten_lines
from graphcal.paper.run_files import RunFiles

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
PAGES = (RESULTS / "README.md", ROOT / "docs" / "reproduction.md")
PUBLISHED = read_toml(ROOT / "src" / "graphcal" / "paper" / "published.toml")

Places = dict[tuple[str, ...], float]


@cache
def means(table: str, method: str, metric: str) -> Places:
    """Mean over runs for each (graph, ..., backbone) of a run file."""
    runs: dict[tuple[str, ...], list[float]] = defaultdict(list)
    with (RESULTS / f"{table}-runs.csv").open() as file:
        for line in csv.DictReader(file):
            if line["method"] == method:
                axes = list(line)[: list(line).index("method")]
                runs[tuple(line[a] for a in axes)].append(float(line[metric]))
    return {place: fmean(values) for place, values in runs.items()}


def over_rows(table: str, method: str, metric: str, *where: str) -> float:
    return fmean(v for place, v in means(table, method, metric).items() if set(where) <= set(place))


def higher(table: str, a: str, b: str, metric: str, *where: str) -> tuple[int, int, float]:
    """Rows in which a is above b, rows, and the mean difference."""
    one, other = means(table, a, metric), means(table, b, metric)
    gaps = [one[place] - other[place] for place in one if place in other and set(where) <= set(place)]
    return sum(gap > 0 for gap in gaps), len(gaps), fmean(gaps)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return ten_lines(RunFiles(RESULTS))


def test_there_are_ten_and_the_pages_have_them() -> None:
    text = answer(RESULTS)
    assert [line.split(".")[0] for line in text.splitlines() if re.match(r"\d+\. ", line)] == [
        str(k) for k in range(1, 11)
    ]
    for page in PAGES:
        assert page.read_text(encoding="utf-8") == filled(page, RESULTS), f"run python -m graphcal.paper.answer {page}"
        assert page.read_text(encoding="utf-8").index("1. **SCAR's numbers") < 800, "the answer comes first"


def test_line_1_numbers(lines: list[str]) -> None:
    gaps = []
    for table, backbone in (("gcn", "gcn"), ("gat", "gat")):
        for (graph, rate, model), value in means(f"table-{table}", "scar-paper", "ece").items():
            if model == backbone:
                gaps.append(100 * value - PUBLISHED[table][graph][rate]["scar"][0])
    assert f"{sum(g > 0 for g in gaps)} of {len(gaps)} are above it, by {fmean(gaps):.2f} on average" in lines[0]
    text = [100 * means("fair", "scar-text", "ece")[graph, "20", "gcn"] for graph in ("cora", "citeseer")]
    assert f"gives {text[0]:.1f} on Cora and {text[1]:.1f} on Citeseer" in lines[0]


def test_line_2_exact_temperatures(lines: list[str]) -> None:
    own = [
        fmean(PUBLISHED[t][g][r]["ts"][0] for g in ("cora", "citeseer", "pubmed") for r in ("20", "40", "60"))
        for t in ("gcn", "gat")
    ]
    ours = 100 * over_rows("table-gcn", "ts", "ece"), 100 * over_rows("table-gat", "ts", "ece", "gat-cagcn")
    assert f"it has {ours[0]:.1f} (GCN) and {ours[1]:.1f} (GAT), published {own[0]:.1f} and {own[1]:.1f}" in lines[1]


def test_line_3_against_ts(lines: list[str]) -> None:
    for table, backbone in (("table-gcn", "gcn"), ("table-gat", "gat")):
        for metric in ("ece", "all_ece"):
            pair = [100 * over_rows(table, m, metric, backbone) for m in ("scar-paper", "scar-recipe-ts")]
            assert f"{pair[0]:.2f} against {pair[1]:.2f}" in lines[2]
    for metric in ("nll", "brier"):
        pair = [over_rows("table-gcn", m, metric) for m in ("scar-paper", "scar-recipe-ts")]
        assert f"{pair[0]:.3f} against {pair[1]:.3f}" in lines[2]
        assert pair[1] < pair[0], "TS is better on proper scores"
    assert f"floor of {100 * over_rows('table-gcn', 'scar-paper', 'ece_floor'):.1f}" in lines[2]


def test_line_4_against_graph_methods(lines: list[str]) -> None:
    code = 100 * over_rows("optimisers", "cagcn-noisy", "ece", "gcn")
    gats, dcgc, scar = (100 * over_rows("table-gcn", m, "ece") for m in ("gats", "dcgc", "scar-paper"))
    assert f"{code:.2f}, {gats:.2f}, {dcgc:.2f} against {scar:.2f} (GCN)" in lines[3]
    gats, dcgc, scar = (100 * over_rows("table-gat", m, "ece", "gat") for m in ("gats", "dcgc", "scar-paper"))
    assert f"GATS {gats:.2f}, DCGC {dcgc:.2f} against {scar:.2f} (GAT)" in lines[3]
    columns = ("uncal", "ts", "ms", "cagcn", "gats", "au-ls", "dcgc", "scar-paper")
    for metric in ("nll", "brier"):
        scores = {m: over_rows("table-gcn", m, metric) for m in columns}
        assert min(scores, key=lambda m: scores[m]) == "ms"
        assert f"{scores['ms']:.3f}" in lines[3]


def test_line_5_accuracy(lines: list[str]) -> None:
    found = [
        higher(t, "scar-recipe", "scar-paper", "accuracy", b) for t, b in (("table-gcn", "gcn"), ("table-gat", "gat"))
    ]
    better, rows = (sum(f[k] for f in found) for k in (0, 1))
    expected = f"in {better} of {rows} rows, by {100 * found[0][2]:.1f} (GCN) and {100 * found[1][2]:.1f} points (GAT)"
    assert expected in lines[4]


def test_lines_6_and_7_components_and_decay(lines: list[str]) -> None:
    clc, nlc = (100 * means("table-ablation", m, "ece")["cora", "20", "gcn"] for m in ("scar-clc", "scar-nlc"))
    assert f"leave {clc:.1f} (CLC) and {nlc:.1f} (NLC)" in lines[5]
    at = {
        m: {k: 100 * means("fig-global-decay", m, k)["cora", "20", "gcn", "0.0001"] for k in ("ece", "accuracy")}
        for m in ("global", "final", "global-ts", "final-ts")
    }
    assert f"lower ECE ({at['global']['ece']:.1f}) than on the final one ({at['final']['ece']:.1f})" in lines[6]
    assert f"at {at['final']['accuracy'] - at['global']['accuracy']:.1f} points of accuracy" in lines[6]
    assert f"({at['global-ts']['ece']:.1f}, {at['final-ts']['ece']:.1f})" in lines[6]


def test_line_8_base_models_and_fagcn(lines: list[str]) -> None:
    fit = [100 * means("fair-backbones", "scar-fit", "ece")["fagcn", g] for g in ("cora", "citeseer")]
    grid = [100 * means("table-backbones", "scar-val", "ece")["fagcn", g] for g in ("cora", "citeseer")]
    assert f"has {fit[0]:.1f} on Cora and {fit[1]:.1f} on Citeseer" in lines[7]
    assert f"version 0.1's {grid[0]:.1f} and {grid[1]:.1f}" in lines[7]


def test_line_9_cost(lines: list[str]) -> None:
    spent: dict[tuple[str, str], float] = {}
    with (RESULTS / "fig-runtime-seconds.csv").open() as file:
        for line in csv.DictReader(file):
            parts = [float(line[k]) for k in ("train", "search", "fit", "apply")]
            spent[line["dataset"], line["method"]] = sum(parts)
    for method in ("scar-paper", "scar-val"):
        times = [spent[g, method] / spent[g, "uncal"] for g in ("cora", "citeseer", "pubmed")]
        assert f"{min(times):.0f} to {max(times):.0f} times" in lines[8]


def test_line_10_what_to_use(lines: list[str]) -> None:
    above, rows, gap = higher("scar", "graph-scar", "ts", "nll")
    assert f"NLL {gap:+.3f} against TS, lower in {rows - above} of {rows} rows" in lines[9]
    graphs = {place[0] for place in means("gats-protocol", "ts", "ece")}
    gaps = [100 * higher("gats-protocol", "graph-scar", "ts", "ece", graph)[2] for graph in graphs]
    assert f"({fmean(gaps):+.2f}, better on {sum(g < 0 for g in gaps)} of {len(gaps)} graphs)" in lines[9]


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
