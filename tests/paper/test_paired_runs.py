"""Paired tests over runs: from the run files alone, each method against TS on its own network, corrected by Holm."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from graphcal.paper.paired_runs import METRICS, all_tests, compared_in_row, main, paired_p, reference_of
from graphcal.paper.run_files import RunFiles

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def runs() -> RunFiles:
    return RunFiles(RESULTS)


def test_the_committed_files_are_up_to_date() -> None:
    main(RESULTS, check=True)


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
    found = {test.method: test for test in compared_in_row(runs, "table-gcn", row) if test.metric == "nll"}
    assert found.keys() == raw.keys()
    first = min(raw, key=lambda m: raw[m])
    assert float(found[first].p) == pytest.approx(len(raw) * raw[first], abs=2e-6)
    last = max(raw, key=lambda m: raw[m])
    assert float(found[last].p) >= raw[last] - 1e-6
    assert float(found["ms"].difference) == pytest.approx(np.mean(nll["ms"]) - np.mean(nll["ts"]), abs=2e-6)


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
        assert len(rows) == len(runs.rows(table, "ts"))
        assert {test.metric for test in tests if test.table == table} == set(METRICS)
