"""Differences between methods, and when they are more than chance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from small_session import small_session

from graphcal.lab.bench.comparisons import against, best_of, from_the_best, over_graphs, p_value, p_values
from graphcal.lab.bench.session import Session


@pytest.fixture
def session() -> Session:
    return small_session()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_runs_with_overlapping_test_nodes_are_not_taken_for_independent(share: float) -> None:
    """Nodes from a population without a difference: at 5 % the test rejects 5 % of the time or less, a plain t-test far more."""
    rng, nodes, runs = np.random.default_rng(0), 1000, 10
    rejected = naive = 0
    for _ in range(600):
        of_node = rng.normal(0, 1, nodes)
        parts = [of_node[rng.random(nodes) < share] for _ in range(runs)]
        d = np.array([part.mean() + rng.normal(0, 0.01) for part in parts])
        shared = (1 - 1 / runs) * share * float(np.mean([part.var() / len(part) for part in parts]))
        rejected += p_value(d, shared) <= 0.05
        naive += stats.ttest_1samp(d, 0).pvalue <= 0.05
    assert rejected <= 48  # 5 % of 600 and three standard deviations
    assert naive > 100
    assert p_value(0.3 + rng.normal(0, 0.01, runs), share * 0.03**2) < 1e-3


def test_a_run_or_an_error_that_is_missing() -> None:
    assert p_value(np.array([0.1]), 0.05**2) == pytest.approx(2 * stats.norm.sf(2.0))  # one run: nodes only
    assert p_value(np.array([0.1, 0.3]), 0.0) == pytest.approx(stats.ttest_1samp([0.1, 0.3], 0).pvalue)
    assert p_value(np.array([0.0, 0.0]), 0.0) == 1.0
    assert p_value(np.array([0.1, 0.1]), 0.0) == 0.0
    few, many = (p_value(np.tile([0.0, 0.2], r), 0.0) for r in (2, 20))
    assert many < 1e-5 < few


def equal_methods(methods: int, runs: int, correlation: float, rng: np.random.Generator) -> np.ndarray:
    common = np.sqrt(correlation) * rng.standard_normal(runs)
    return common + np.sqrt(1 - correlation) * rng.standard_normal((methods, runs))


def told_apart(values: np.ndarray, shared: np.ndarray) -> bool:
    """Is any method told from the one with the lowest mean?"""
    return min(from_the_best(values, shared, int(values.mean(axis=1).argmin())).values()) <= 0.05


@pytest.mark.slow_cases(
    "0.8-5-13",
    "0.8-10-13",
    "0.0-40-13",
    "0.0-5-13",
    "0.8-40-13",
    "0.0-5-5",
    "0.0-10-5",
    "0.0-40-5",
    "0.8-40-5",
    "0.8-5-5",
    "0.8-10-5",
    "0.0-10-13",
)
@pytest.mark.parametrize("methods", [2, 5, 13])
@pytest.mark.parametrize("runs", [5, 10, 40])
@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_equal_methods_are_rarely_told_from_the_best(methods: int, runs: int, correlation: float) -> None:
    """The best is chosen by the same values: at 5 %, some method is told from it in at most 5 % of the rows."""
    rng, rows = np.random.default_rng(methods * runs), 300
    none = np.zeros((methods, methods))
    rejected = sum(told_apart(equal_methods(methods, runs, correlation, rng), none) for _ in range(rows))
    assert rejected <= rows * 0.05 + 3 * np.sqrt(rows * 0.05 * 0.95)


@pytest.mark.slow
def test_thirteen_methods_with_the_same_node_error_are_rarely_told_from_the_best() -> None:
    """The error of the nodes is in all runs: 18 % would be told apart, were only the pairs with the best corrected for."""
    rng, rows, methods = np.random.default_rng(0), 500, 13
    shared = 0.8 + 0.2 * np.eye(methods)  # correlated: the same nodes for all methods
    root = np.linalg.cholesky(shared)
    drawn = [
        (root @ rng.standard_normal(methods))[:, None] + equal_methods(methods, 10, 0.0, rng) / 10 for _ in range(rows)
    ]
    assert sum(told_apart(values, shared) for values in drawn) <= 40  # 5 % and three standard deviations
    only_the_best = 0
    for values in drawn:
        best = int(values.mean(axis=1).argmin())
        only_the_best += min(p_values(values, shared, [(k, best) for k in range(methods) if k != best])) <= 0.05
    assert only_the_best > 60


def test_a_clear_difference_is_told_from_the_best_of_thirteen() -> None:
    rng, methods = np.random.default_rng(1), 13
    shared = 0.04 * (0.8 + 0.2 * np.eye(methods))
    clear = 0
    for _ in range(100):
        values = equal_methods(methods, 10, 0.8, rng) * 0.2 + np.linalg.cholesky(shared) @ rng.standard_normal((13, 1))
        values[1:] += 0.8  # six standard errors
        best = int(values.mean(axis=1).argmin())
        p = from_the_best(values, shared, best)
        clear += best == 0 and all(one <= 0.05 for one in p.values())
    assert clear >= 80


def test_differences_have_the_sign_of_the_metric(session: Session) -> None:
    keys = {m: [one.cell.key for one in session.slots if one.method == m] for m in ("uncal", "ts")}
    for metric in ("ece", "nll"):
        difference = against("ts", keys, session.store, metric)["uncal"]
        assert difference.value > 0
        assert difference.real
    same = against("ts", keys, session.store, "accuracy")["uncal"]
    assert same.value == 0
    assert not same.real


def test_two_methods_are_compared_with_the_best_as_with_a_reference(session: Session) -> None:
    keys = {m: [one.cell.key for one in session.slots if one.method == m] for m in ("uncal", "ts")}
    assert best_of(keys, session.store, "nll") == ("ts", against("ts", keys, session.store, "nll"))


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([-1.0, -2.0, -0.5], 2 / 8),  # the farthest mean of all eight: itself and its mirror image
        ([1.0, -1.0], 1.0),
        ([3.0, -1.0, 1.0], 6 / 8),  # |5|, |3|, |3|, |1| and mirror images: observed 3
        ([0.0, 0.0], 1.0),
        ([0.1] * 9, 2 / 512),
    ],
)
def test_over_graphs_every_sign_is_a_coin(differences: list[float], p: float) -> None:
    assert over_graphs(differences) == pytest.approx(p)
