import numpy as np
import pytest
from simulated_draws import SAYS, SHAPES, draws

from graphcal.decisions.thresholds import benjamini_hochberg, conformal_p_values, select_on_average

TIMES = 1000


@pytest.mark.parametrize("says", SAYS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_mean_false_discovery_rate_is_at_its_target(shape, says):
    shares = []
    for conf, wrong, certify in draws(shape, says, 900, 300, TIMES):
        selected = select_on_average(conf, wrong, certify, ~certify, 0.1)
        shares.append(wrong[selected].mean() if selected.any() else 0.0)
    noise = np.std(shares) / np.sqrt(TIMES)
    assert np.mean(shares) <= 0.1 + 3.5 * noise
    if shape == "citation":
        assert np.mean(shares) >= 0.085  # not by being timid
        assert 0.2 < np.mean(np.array(shares) > 0.1) < 0.7  # a single draw is another matter


def test_the_threshold_form_and_the_p_values_agree():
    for conf, wrong, certify in draws("two groups", "calibrated", 400, 150, 20):
        selected = select_on_average(conf, wrong, certify, ~certify, 0.15)
        m, n = (~certify).sum(), certify.sum()
        fits = [
            t
            for t in conf[~certify]
            if (m / (n + 1)) * (1 + (wrong & certify & (conf >= t)).sum()) / (~certify & (conf >= t)).sum() <= 0.15
        ]
        expected = ~certify & (conf >= min(fits, default=np.inf))
        np.testing.assert_array_equal(selected, expected)


def test_p_values_and_the_step():
    conf = np.array([0.9, 0.8, 0.7, 0.85, 0.75])
    wrong, certify = np.array([0, 1, 1, 0, 0], bool), np.array([1, 1, 1, 0, 0], bool)
    np.testing.assert_allclose(conformal_p_values(conf, wrong, certify, ~certify), [1 / 4, 2 / 4])
    assert benjamini_hochberg(np.array([0.01, 0.04, 0.9]), 0.1).tolist() == [True, True, False]
    assert benjamini_hochberg(np.array([]), 0.1).tolist() == []


def test_a_wrong_node_of_equal_confidence_counts():
    conf = np.array([0.9, 0.8, 0.9, 0.7])
    wrong, certify = np.array([1, 0, 0, 0], bool), np.array([1, 1, 0, 0], bool)
    np.testing.assert_allclose(conformal_p_values(conf, wrong, certify, ~certify), [2 / 3, 2 / 3])


@pytest.mark.slow
def test_ties_keep_the_rate():
    rng, shares = np.random.default_rng(0), []
    for _ in range(TIMES):
        conf = np.round(rng.uniform(0.6, 1, 900), 1)
        wrong = rng.random(900) < 1.1 * (1 - conf) + 0.05
        certify = np.zeros(900, bool)
        certify[rng.permutation(900)[:300]] = True
        selected = select_on_average(conf, wrong, certify, ~certify, 0.1)
        shares.append(wrong[selected].mean() if selected.any() else 0.0)
    assert np.mean(shares) <= 0.1 + 3.5 * np.std(shares) / np.sqrt(TIMES)
