import numpy as np
import pytest
from scipy.stats import beta, hypergeom

from graphcal.decisions.bounds import (
    error_count_interval,
    future_certified,
    hypergeometric_cdf,
    labels_needed,
    most_errors,
    realised_certified,
    share_interval,
)


def test_the_cdf_is_scipys():
    rng = np.random.default_rng(0)
    K = rng.integers(1, 400, 300)
    E, k = rng.integers(0, K + 1), rng.integers(0, K + 1)
    e = np.minimum(rng.integers(0, k + 1), E)
    np.testing.assert_allclose(hypergeometric_cdf(e, K, E, k), hypergeom.cdf(e, K, E, k), atol=1e-9)


def test_the_largest_plausible_number_of_errors():
    for e, K, k in ((0, 100, 30), (3, 200, 59), (5, 40, 40), (7, 50, 10)):
        largest = int(most_errors(np.array([e]), np.array([K]), np.array([k]), 0.05)[0])
        plausible = [E for E in range(e, K - (k - e) + 1) if hypergeom.cdf(e, K, E, k) > 0.05]
        assert largest == max(plausible, default=e)


@pytest.mark.parametrize("max_error", [0.02, 0.05, 0.2])
def test_certified_means_that_the_bound_is_below_the_target(max_error):
    rng = np.random.default_rng(1)
    K = rng.integers(2, 600, 500)
    k = rng.integers(0, K + 1)
    e = rng.binomial(k, max_error / 2)
    most = most_errors(e, K, k, 0.05) - e
    expected = (most <= max_error * (K - k) + 1e-9) & (k < K)
    np.testing.assert_array_equal(realised_certified(e, K, k, max_error, 0.05), expected)
    assert expected.any()
    assert not expected.all()


def test_future_nodes_take_clopper_and_pearsons_bound():
    e, k = np.array([0, 0, 1, 3, 0]), np.array([58, 59, 93, 200, 0])
    bound = np.where(k > 0, beta.ppf(0.95, e + 1, np.maximum(k - e, 1)), 1)
    np.testing.assert_array_equal(future_certified(e, k, 0.05, 0.05), bound <= 0.05)
    assert future_certified(e, k, 0.05, 0.05).tolist() == [False, True, True, True, False]


def test_labels_needed_are_exactly_enough():
    for max_error, certainty, need in ((0.05, 0.95, 59), (0.01, 0.95, 299), (0.02, 0.95, 149), (0.05, 0.99, 90)):
        assert labels_needed(max_error, certainty) == need
        passes = future_certified(np.array([0, 0]), np.array([need - 1, need]), max_error, 1 - certainty)
        assert passes.tolist() == [False, True]


def test_two_sided_intervals_hold_the_truth():
    rng, K, E, k = np.random.default_rng(2), 300, 45, 80
    seen = rng.hypergeometric(E, K - E, k, 2000)
    ends = {e: error_count_interval(e, K, k, 0.9) for e in set(seen.tolist())}
    inside = np.mean([ends[e][0] <= E <= ends[e][1] for e in seen.tolist()])
    assert 0.9 - 3 * np.sqrt(0.09 / 2000) <= inside < 0.98
    assert share_interval(0, 10, 0.95)[0] == 0
    assert share_interval(10, 10, 0.95) == (pytest.approx(0.6915, abs=1e-4), 1.0)
