"""Paired tests over runs: from the run files alone, each method against TS on its own network, corrected by Holm."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from graphcal.lab.paper.paired_runs import TABLES, all_tests, compared_in_row, paired_p, reference_of, rows_of
from graphcal.lab.paper.run_files import RunFiles

RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture(scope="module")
def runs() -> RunFiles:
    return RunFiles(RESULTS)


def test_a_p_value_is_that_of_the_paired_t_test_times_its_holm_factor(runs: RunFiles) -> None:
    """Computed here from the CSV alone: the smallest of a row counts as many times as the row has methods."""
    with (RESULTS / "table-gcn-runs.csv").open(encoding="utf-8") as file:
        here = [line for line in csv.DictReader(file) if (line["dataset"], line["labels_per_class"]) == ("cora", "40")]
    nll = {m: [float(line["nll"]) for line in here if line["method"] == m] for m in {line["method"] for line in here}}
    against = {m: "scar-recipe-ts" if m == "scar-paper" else "ts" for m in nll if m != "ts"}
    raw = {m: float(stats.ttest_rel(nll[m], nll[ref]).pvalue) for m, ref in against.items()}
    row = next(
        row for row in runs.rows("table-gcn") if dict(row)["dataset"] == "cora" and ("labels_per_class", "40") in row
    )
    tests = {test.method: test for test in compared_in_row(runs, "table-gcn", row) if test.metric == "nll"}
    assert tests.keys() == raw.keys()
    first = min(raw, key=lambda m: raw[m])
    assert float(tests[first].p) == pytest.approx(len(raw) * raw[first], abs=2e-6)
    last = max(raw, key=lambda m: raw[m])
    assert float(tests[last].p) >= raw[last] - 1e-6
    assert float(tests["ms"].difference) == pytest.approx(np.mean(nll["ms"]) - np.mean(nll["ts"]), abs=2e-6)


def test_scar_is_held_against_ts_on_its_own_network() -> None:
    there = {"ts", "scar-recipe-ts", "scar-paper", "gats"}
    assert reference_of("scar-paper", there) == "scar-recipe-ts"
    assert reference_of("gats", there) == "ts"
    assert reference_of("scar-paper", there - {"scar-recipe-ts"}) == "ts"


def test_no_difference_is_no_finding_and_the_same_difference_everywhere_is_one() -> None:
    assert paired_p(np.zeros(10)) == 1.0
    assert paired_p(np.full(10, 0.1)) < 1e-6
    assert paired_p(np.array([0.3])) == 1.0


def test_every_row_with_ts_is_tested_by_every_metric(runs: RunFiles) -> None:
    tests = all_tests(runs)
    for table in {test.table for test in tests}:
        rows = {test.row for test in tests if test.table == table}
        assert len(rows) == len(rows_of(runs, table))
        assert {test.metric for test in tests if test.table == table} == set(TABLES[table])
    assert {test.table for test in tests} == set(TABLES)


def test_all_unlabelled_nodes_are_tested_where_they_are_not_the_test_nodes(runs: RunFiles) -> None:
    assert len(rows_of(runs, "fair")) == len(rows_of(runs, "fair-gat")) == 9
    graphs = {dict(row)["dataset"] for row in rows_of(runs, "fair-backbones")}
    assert graphs == {"cora", "citeseer", "pubmed"}, "of Chameleon and Squirrel all unlabelled nodes are test nodes"
    assert len(rows_of(runs, "table-backbones")) == 10, "the older tables are tested on their test nodes"


def test_what_all_unlabelled_nodes_show() -> None:
    """Rows that are better and worse than TS, recomputed from the CSV file."""
    with (RESULTS / "paired-runs.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))

    def count(table: str, method: str, metric: str) -> tuple[int, int]:
        lower = [
            float(line["difference"]) < 0
            for line in lines
            if (line["table"], line["method"], line["metric"]) == (table, method, metric) and float(line["p"]) < 0.05
        ]
        return sum(lower), len(lower) - sum(lower)

    tables = ("fair", "fair-gat", "fair-backbones")
    assert [count(table, "graph-scaling", "all_ece") for table in tables] == [(8, 0), (6, 1), (5, 0)]
    assert [count(table, "graph-scaling", "all_nll") for table in tables] == [(9, 0), (9, 0), (6, 0)]
    assert [count(table, "scar-fit", "all_ece") for table in tables] == [(1, 1), (3, 0), (1, 1)]
    assert [count(table, "scar-fit", "all_nll") for table in tables] == [(5, 2), (0, 5), (0, 4)]
