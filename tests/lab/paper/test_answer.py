"""The ten lines: every number of them is computed here once more, from the run files alone, without the module's code."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

import pytest
from scipy import stats

from graphcal.files import read_toml
from graphcal.lab.paper.answer import answer, fill, filled, main, ten_lines
from graphcal.lab.paper.run_files import RunFiles

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results"
PAGES = (RESULTS / "README.md", ROOT / "docs" / "reproduction.md")
PUBLISHED = read_toml(ROOT / "src" / "graphcal" / "lab" / "paper" / "published.toml")

Places = dict[tuple[str, ...], float]


@cache
def lines_of(table: str) -> list[dict[str, str]]:
    with (RESULTS / f"{table}-runs.csv").open() as file:
        return list(csv.DictReader(file))


def runs_of(table: str, method: str, metric: str, scale: float = 100.0) -> dict[tuple[str, ...], list[float]]:
    """The values of each (graph, ..., backbone) of a run file, in percent."""
    runs: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for line in lines_of(table):
        if line["method"] == method:
            axes = list(line)[: list(line).index("method")]
            runs[tuple(line[a] for a in axes)].append(scale * float(line[metric]))
    return runs


@cache
def means(table: str, method: str, metric: str) -> Places:
    """Mean over runs for each (graph, ..., backbone) of a run file."""
    return {place: fmean(values) for place, values in runs_of(table, method, metric, 1.0).items()}


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
        assert page.read_text(encoding="utf-8") == filled(page, RESULTS), (
            f"run python -m graphcal.lab.paper.answer {page}"
        )
        assert page.read_text(encoding="utf-8").index("1. **SCAR's numbers") < 800, "the answer comes first"


def numbers(text: str) -> list[str]:
    """Every number of a sentence, in its order."""
    return re.findall(r"[-+]?\d+(?:\.\d+)?(?:e-\d+)?", text)


def verdict(ours: list[float], published: list[float]) -> str:
    """Two one-sided tests within a point, then Welch's, both by SciPy on the ten values of a run file."""
    mean, sd = fmean(ours), stdev(ours)

    def p(shift: float, alternative: str) -> float:
        found = stats.ttest_ind_from_stats(mean + shift, sd, len(ours), *published, 10, False, alternative)
        return float(found.pvalue)

    if max(p(1.0, "greater"), p(-1.0, "less")) < 0.05:
        return "equivalent"
    return "differs" if p(0.0, "two-sided") < 0.05 else "open"


def scar_cells() -> list[tuple[list[float], list[float]]]:
    """(ten ECEs, the published mean and sd) of SCAR with its published settings."""
    return [
        (values, PUBLISHED[table][graph][rate]["scar"])
        for table, backbone in (("gcn", "gcn"), ("gat", "gat"))
        for (graph, rate, model), values in runs_of(f"table-{table}", "scar-paper", "ece").items()
        if model == backbone
    ]


def test_the_heading_counts_every_published_number_once() -> None:
    """Distinct (graph, labels, network, metric, column) of the paper, and the cell of ours that stands for each."""
    columns = {"scar-paper": "scar", "scar-val": "scar", "scar-clc": "clc", "scar-nlc": "nlc"}
    found: dict[tuple[str, ...], tuple[tuple[bool, int], str]] = {}
    tables = ("table-gcn", "table-gat", "table-ablation", "table-accuracy", "table-hetero", "table-backbones")
    for order, table in enumerate(tables):
        metric = "accuracy" if table == "table-accuracy" else "ece"
        with (RESULTS / f"{table}.csv").open() as file:
            lines = [line for line in csv.DictReader(file) if line["published_mean"] and int(line["runs"]) > 1]
        for line in lines:
            method, backbone = line["method"], line["backbone"]
            place = [line[axis] for axis in list(line)[: list(line).index("method")]]
            key = (line["dataset"], line.get("labels_per_class", "20"), backbone.removesuffix("-cagcn"), metric)
            mine = runs_of(table, method, metric)[tuple(place)]
            judged = verdict(mine, [float(line["published_mean"]), float(line["published_sd"])])
            rank = (not backbone.endswith("-cagcn"), order)
            entry = (*key, columns.get(method, method))
            if entry not in found or rank < found[entry][0]:
                found[entry] = (rank, judged)
    verdicts = [judged for _, judged in found.values()]
    claims = (RESULTS / "claims.md").read_text(encoding="utf-8")
    counts = [
        claims.count(f"| **{name}** |") for name in ("holds", "holds in part", "does not hold", "cannot be tested")
    ]
    tested = [verdicts.count(name) for name in ("equivalent", "differs", "open")]
    heading = answer(RESULTS).split("\n\n")[0]
    assert numbers(heading) == [str(n) for n in (len(verdicts), 306, *tested, *counts)]
    assert len(verdicts) == 238
    assert sum(counts) == len([line for line in claims.splitlines() if line.startswith("| ")]) - 2


def test_line_1_numbers(lines: list[str]) -> None:
    cells = scar_cells()
    verdicts = [verdict(values, published) for values, published in cells]
    gaps = [fmean(values) - published[0] for values, published in cells]
    low, high = stats.ttest_1samp(gaps, 0.0).confidence_interval(0.95)
    above = sum(g > 0 for g in gaps)
    text, fit = ([100 * over_rows(t, m, "ece") for t in ("fair", "fair-gat")] for m in ("scar-text", "scar-fit"))
    own = [
        fmean(PUBLISHED[t][g][r]["scar"][0] for g in ("cora", "citeseer", "pubmed") for r in ("20", "40", "60"))
        for t in ("gcn", "gat")
    ]
    counts = [verdicts.count("equivalent"), len(cells), verdicts.count("differs"), above, len(cells)]
    bias = [f"{fmean(gaps):.2f}", f"{low:.2f}", f"{high:.2f}", f"{stats.binomtest(above, len(gaps)).pvalue:.1g}"]
    assert numbers(lines[0]) == [*map(str, counts), *bias, *(f"{v:.1f}" for v in (*text, *own, *fit))]


def test_line_2_exact_temperatures(lines: list[str]) -> None:
    own = [
        fmean(PUBLISHED[t][g][r]["ts"][0] for g in ("cora", "citeseer", "pubmed") for r in ("20", "40", "60"))
        for t in ("gcn", "gat")
    ]
    ours = 100 * over_rows("table-gcn", "ts", "ece"), 100 * over_rows("table-gat", "ts", "ece", "gat-cagcn")
    assert numbers(lines[1]) == [f"{v:.1f}" for v in (*ours, *own)]


def test_line_3_against_ts(lines: list[str]) -> None:
    pairs = {
        (table, metric): [over_rows(table, m, metric, backbone) for m in ("scar-paper", "scar-recipe-ts")]
        for table, backbone in (("table-gcn", "gcn"), ("table-gat", "gat"))
        for metric in ("ece", "all_ece", "nll", "brier")
    }
    ece, everywhere = (
        [f"{100 * v:.2f}" for table in ("table-gcn", "table-gat") for v in pairs[table, metric]]
        for metric in ("ece", "all_ece")
    )
    proper = [f"{v:.3f}" for metric in ("nll", "brier") for v in pairs["table-gcn", metric]]
    floor = f"{100 * over_rows('table-gcn', 'scar-paper', 'ece_floor'):.1f}"
    assert numbers(lines[2]) == [*ece, floor, *everywhere, *proper]
    for metric in ("nll", "brier"):
        scar, ts = pairs["table-gcn", metric]
        assert ts < scar, "TS is better on proper scores"


def test_line_4_against_graph_methods(lines: list[str]) -> None:
    code = over_rows("optimisers", "cagcn-noisy", "ece", "gcn")
    gcn = [over_rows("table-gcn", m, "ece") for m in ("gats", "dcgc", "scar-paper")]
    gat = [over_rows("table-gat", m, "ece", "gat") for m in ("gats", "dcgc", "scar-paper")]
    columns = ("uncal", "ts", "ms", "cagcn", "gats", "au-ls", "dcgc", "scar-paper")
    best = []
    for metric in ("nll", "brier"):
        scores = {m: over_rows("table-gcn", m, metric) for m in columns}
        assert min(scores, key=lambda m: scores[m]) == "ms"
        best.append(f"{scores['ms']:.3f}")
    assert numbers(lines[3]) == [*(f"{100 * v:.2f}" for v in (code, *gcn, *gat)), *best]


def test_line_5_accuracy(lines: list[str]) -> None:
    found = [
        higher(t, "scar-recipe", "scar-paper", "accuracy", b) for t, b in (("table-gcn", "gcn"), ("table-gat", "gat"))
    ]
    better, rows = (sum(f[k] for f in found) for k in (0, 1))
    assert numbers(lines[4]) == [str(better), str(rows), *(f"{100 * f[2]:.1f}" for f in found)]


def test_lines_6_and_7_components_and_decay(lines: list[str]) -> None:
    ours = [100 * means("table-ablation", m, "ece")["cora", "20", "gcn"] for m in ("scar-clc", "scar-nlc")]
    own = [PUBLISHED["ablation"]["cora"]["gcn"][column][0] for column in ("clc", "nlc")]
    assert numbers(lines[5]) == [f"{v:.1f}" for v in (*ours, *own)]
    at = {
        m: {k: 100 * means("fig-global-decay", m, k)["cora", "20", "gcn", "0.0001"] for k in ("ece", "accuracy")}
        for m in ("global", "final", "global-ts", "final-ts")
    }
    cost = at["final"]["accuracy"] - at["global"]["accuracy"]
    values = (at["global"]["ece"], at["final"]["ece"], cost, at["global-ts"]["ece"], at["final-ts"]["ece"])
    assert numbers(lines[6]) == ["1e-4", *(f"{v:.1f}" for v in values)]


def test_line_8_base_models_and_fagcn(lines: list[str]) -> None:
    verdicts = []
    for table, name in (("table-hetero", "hetero"), ("table-backbones", "backbones")):
        for place, values in runs_of(table, "uncal", "ece").items():
            graph, backbone = place if name == "hetero" else place[::-1]
            if graph in PUBLISHED[name]:
                verdicts.append(verdict(values, PUBLISHED[name][graph][backbone]["uncal"]))
    lower = {}
    for metric in ("ece", "nll"):
        found = [higher(table, "scar-fit", "ts", metric) for table in ("fair-hetero", "fair-backbones")]
        lower[metric] = [sum(f[1] - f[0] for f in found), sum(f[1] for f in found)]
    fit = 100 * means("fair-backbones", "scar-fit", "ece")["fagcn", "cora"]
    grid = 100 * means("table-backbones", "scar-val", "ece")["fagcn", "cora"]
    own = PUBLISHED["backbones"]["cora"]["fagcn"]["scar"][0]
    assert numbers(lines[7]) == [
        str(verdicts.count("differs")), str(len(verdicts)), *map(str, lower["ece"]), str(lower["nll"][0]),
        f"{fit:.1f}", f"{own:.1f}", "0.1", f"{grid:.1f}",
    ]  # fmt: skip


def test_line_9_cost(lines: list[str]) -> None:
    spent: dict[tuple[str, str], float] = {}
    with (RESULTS / "fig-runtime-seconds.csv").open() as file:
        for line in csv.DictReader(file):
            parts = [float(line[k]) for k in ("train", "search", "fit", "apply")]
            spent[line["dataset"], line["method"]] = sum(parts)
    expected = []
    for method in ("scar-paper", "scar-val"):
        times = [spent[g, method] / spent[g, "uncal"] for g in ("cora", "citeseer", "pubmed")]
        expected += [f"{min(times):.0f}", f"{max(times):.0f}"]
    assert numbers(lines[8]) == expected


def test_line_10_what_to_use(lines: list[str]) -> None:
    fair = ("fair", "fair-gat")
    ours, ts, fitted, no_pull = (
        [over_rows(table, m, "nll") for table in fair]
        for m in ("graph-scaling", "ts", "scar-fit", "graph-scaling-no-pull")
    )
    assert all(mine < min(theirs) for mine, *theirs in zip(ours, ts, fitted)), "is better"
    ece = [100 * over_rows(table, m, "ece") for table in fair for m in ("graph-scaling", "scar-fit")]
    said = [*(f"{v:.3f}" for v in (*ours, *ts, *fitted)), *(f"{v:.1f}" for v in ece), *(f"{v:.3f}" for v in no_pull)]
    above, rows, gap = higher("scar", "graph-scar", "ts", "nll")
    graphs = {place[0] for place in means("gats-protocol", "ts", "ece")}
    gaps = [100 * higher("gats-protocol", "graph-scar", "ts", "ece", graph)[2] for graph in graphs]
    assert numbers(lines[9]) == [
        *said, f"{gap:+.3f}", str(rows - above), str(rows),
        f"{fmean(gaps):+.2f}", str(sum(g < 0 for g in gaps)), str(len(gaps)),
    ]  # fmt: skip


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
