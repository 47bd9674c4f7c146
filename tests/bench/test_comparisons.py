"""Differences between methods, and when they are more than chance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from small_session import small_session

from graphcal.bench.comparisons import difference, over_graphs, over_splits, ranks_of
from graphcal.bench.session import Session


@pytest.fixture
def session() -> Session:
    return small_session()


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_runs_with_overlapping_test_nodes_are_not_taken_for_independent(share: float) -> None:
    """Nodes from a population without a difference: at 5 % the test rejects 5 % of the time or less, a plain t-test far more."""
    rng, nodes, runs = np.random.default_rng(0), 1000, 10
    rejected = naive = 0
    for _ in range(600):
        of_node = rng.normal(0, 1, nodes)
        parts = [of_node[rng.random(nodes) < share] for _ in range(runs)]
        d = [part.mean() + rng.normal(0, 0.01) for part in parts]
        rejected += over_splits(d, [part.std() / len(part) ** 0.5 for part in parts], share) <= 0.05
        naive += stats.ttest_1samp(d, 0).pvalue <= 0.05
    assert rejected <= 48  # 5 % of 600 and three standard deviations
    assert naive > 100
    shifted = [0.3 + rng.normal(0, 0.01) for _ in range(runs)]
    assert over_splits(shifted, [0.03] * runs, share) < 1e-3
    assert over_splits([0.1], [0.01], share) == 1.0


def test_differences_have_the_sign_of_the_metric(session: Session) -> None:
    keys = {m: [one.cell.key for one in session.slots if one.method == m] for m in ("uncal", "ts")}
    for metric in ("ece", "nll"):
        found = difference(keys["uncal"], keys["ts"], session.store, metric)
        assert found.value > 0
        assert found.real
    same = difference(keys["uncal"], keys["ts"], session.store, "accuracy")
    assert same.value == 0
    assert not same.real


def test_ranks() -> None:
    table = [{"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 1.0, "b": 3.0, "c": 2.0}] * 3
    found = ranks_of(table, "ece")
    assert found is not None
    assert dict(zip(found.names, found.mean)) == {"a": 1.0, "b": 2.5, "c": 2.5}
    turned = ranks_of(table, "accuracy")
    assert turned is not None
    assert dict(zip(turned.names, turned.mean))["a"] == 3.0
    assert ranks_of(table[:4], "ece") is None, "four graphs rank nothing"


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
