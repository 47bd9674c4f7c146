"""Welch and TOST: cases worked by hand, and scipy's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from graphcal.lab.bench.comparisons import MeanDifference, Sample, bias, combine, welch


def test_welch_by_hand() -> None:
    # se² = 0.6²/10 + 0.8²/10 = 0.1; df = 0.01 / (0.036²/9 + 0.064²/9) = 0.01 / 0.000599111 = 16.6914
    result = welch(Sample(4.0, 0.6, 10), Sample(3.5, 0.8, 10))
    assert result.value == pytest.approx(0.5)
    assert result.error == pytest.approx(math.sqrt(0.1))
    assert result.df == pytest.approx(16.6914, abs=1e-4)


def test_welch_is_scipys() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.normal(3, rng.uniform(0.1, 2), 10), rng.normal(3.4, rng.uniform(0.1, 2), 7)
        ours = welch(Sample(a.mean(), a.std(ddof=1), 10), Sample(b.mean(), b.std(ddof=1), 7))
        theirs = stats.ttest_ind(a, b, equal_var=False)
        assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
        interval = theirs.confidence_interval(0.95)
        assert ours.interval() == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_tost_is_the_larger_of_two_one_sided_tests() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        a, b = rng.normal(0, 0.5, 10), rng.normal(rng.uniform(-1, 1), 0.5, 10)
        ours = welch(Sample(a.mean(), a.std(ddof=1), 10), Sample(b.mean(), b.std(ddof=1), 10))
        above = stats.ttest_ind(a + 1.0, b, equal_var=False, alternative="greater").pvalue  # d > -1
        below = stats.ttest_ind(a - 1.0, b, equal_var=False, alternative="less").pvalue  # d < 1
        assert ours.p_beyond(1.0) == pytest.approx(max(above, below), rel=1e-9)
        low, high = ours.interval(0.10)
        assert (ours.p_beyond(1.0) < 0.05) == (low > -1 and high < 1)


def test_the_three_verdicts() -> None:
    assert MeanDifference(0.1, 0.05, 18).verdict(1.0) == "equivalent"  # though it also differs from zero
    assert MeanDifference(2.0, 0.3, 18).verdict(1.0) == "differs"
    assert MeanDifference(0.5, 0.5, 18).verdict(1.0) == "open"
    assert MeanDifference(1.5, 0.0, 18).verdict(1.0) == "differs"


def test_equal_means_of_ten_runs_are_hardly_ever_shown_to_be_within_half_a_point() -> None:
    """Why the margin is one point: with the tables' typical deviation a margin of a half is out of reach."""
    typical = Sample(4.0, 0.57, 10)
    assert welch(typical, typical).verdict(0.5) == "equivalent"
    assert welch(Sample(4.1, 0.57, 10), typical).verdict(0.5) == "open"
    assert welch(Sample(4.5, 0.57, 10), typical).verdict(1.0) == "equivalent"


def test_rows_of_a_graph_are_combined_by_their_errors() -> None:
    rows = [MeanDifference(0.3, 0.3, 9), MeanDifference(0.5, 0.4, 9)]
    both = combine(rows)
    assert (both.value, both.error) == (pytest.approx(0.4), pytest.approx(0.25))
    assert both.df == pytest.approx(0.25**2 / (0.09**2 / 9 + 0.16**2 / 9))


def test_bias_by_hand() -> None:
    result = bias([1.0, 2.0, 3.0, -1.0])
    # mean 1.25, sd 1.7078, t(3) = 3.1824: half width 2.7175; three of four above: p = 10/16
    assert (result.mean, result.above, result.entries) == (1.25, 3, 4)
    assert (result.low, result.high) == (pytest.approx(-1.4675, abs=1e-4), pytest.approx(3.9675, abs=1e-4))
    assert result.p_sign == pytest.approx(0.625)
    assert bias([1.0] * 17 + [-1.0]).p_sign == pytest.approx(38 / 2**18)
