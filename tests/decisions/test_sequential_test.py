import numpy as np
import pytest
from scipy.integrate import quad

from graphcal.decisions.bounds import labels_until_refuted, log_e_value


def test_the_capital_is_the_mixture_of_bets():
    wrong, r = np.array([0, 1, 1, 0, 0, 1], bool), 0.1
    for n in range(1, 7):
        k = wrong[:n].sum()
        expected = quad(lambda q, k=k, n=n: (q / r) ** k * ((1 - q) / (1 - r)) ** (n - k) / (1 - r), r, 1)[0]
        assert np.exp(log_e_value(wrong, r)[n - 1]) == pytest.approx(expected)


@pytest.mark.parametrize("risk", [0.05, 0.02])
def test_a_kept_promise_is_rarely_refuted_however_often_one_looks(risk):
    rng, times = np.random.default_rng(0), 2000
    broken = [labels_until_refuted(rng.random(400) < risk, 0.05, 0.05) is not None for _ in range(times)]
    assert np.mean(broken) <= 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / times)


def test_a_broken_promise_is_found():
    rng = np.random.default_rng(1)
    labels = [labels_until_refuted(rng.random(400) < 0.15, 0.05, 0.05) for _ in range(200)]
    assert np.mean([n is not None for n in labels]) > 0.95
    assert np.median([n for n in labels if n]) < 150
    assert labels_until_refuted(np.zeros(500, bool), 0.05, 0.05) is None
