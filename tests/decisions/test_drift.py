import numpy as np
import pytest

from graphcal.decisions.drift import calibration_slope, compare_counts, stability_index


def test_the_index_is_symmetric_and_zero_for_equal_shares():
    assert stability_index([10, 20, 30], [100, 200, 300]) == pytest.approx(0, abs=2e-3)
    assert stability_index([50, 50], [90, 10]) == pytest.approx(stability_index([90, 10], [50, 50]))
    assert stability_index([5000, 5000], [9000, 1000]) == pytest.approx(0.4 * np.log(9), rel=0.01)


def test_drift_needs_size_and_certainty():
    large = compare_counts("x", [900, 100], [500, 500])
    assert large.is_drift(0.001)
    certain_but_small = compare_counts("x", [50_500, 49_500], [500_000, 500_000])
    assert certain_but_small.p < 0.01
    assert not certain_but_small.is_drift(0.01)
    few = compare_counts("x", [3, 1], [500, 500])
    assert not few.is_drift(0.01)
    assert compare_counts("x", [3, 0], [2, 0]).p == 1.0


def test_p_values_are_fair():
    rng, share = np.random.default_rng(0), np.array([0.002, 0.01, 0.2, 0.3, 0.488])
    p = [compare_counts("x", rng.multinomial(300, share), rng.multinomial(5000, share)).p for _ in range(600)]
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / 600)
    assert np.mean(np.array(p) <= 0.5) > 0.35


@pytest.mark.parametrize("truth", [1.0, 0.5])
def test_the_slope_is_found(truth):
    rng = np.random.default_rng(2)
    z = rng.normal(1.5, 1.0, 20_000)
    conf = 1 / (1 + np.exp(-z))
    right = rng.random(20_000) < 1 / (1 + np.exp(-truth * z))
    slope = calibration_slope(conf, right)
    assert slope.low <= truth <= slope.high
    assert slope.high - slope.low < 0.2


def test_without_variation_there_is_no_slope():
    assert calibration_slope(np.array([0.6, 0.9]), np.array([True, True])) is None
    assert calibration_slope(np.array([0.6, 0.6]), np.array([True, False])) is None
