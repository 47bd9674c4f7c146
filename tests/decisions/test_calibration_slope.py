import numpy as np
import pytest

from graphcal.decisions.monitoring import calibration_slope


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
