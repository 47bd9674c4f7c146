"""The relatives of ECE by hand: class-wise, top-label, degree-binned."""

import pytest
import torch
from known_truth import binary

from graphcal import metrics

LOG_PROBS = torch.tensor(
    [[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.7, 0.1]], dtype=torch.float64
).log()
Y = torch.tensor([0, 1, 1, 0])


def test_ece_classwise_by_hand():
    # two bins: class 0 has {.1, .2} with one label and {.6, .7} with one; class 1 {.2, .3} with one, {.7, .8} with one;
    # class 2 has {.1, .1, .1, .1} with none
    expected = (abs(1 - 0.3) + abs(1 - 1.3) + abs(1 - 0.5) + abs(1 - 1.5) + 0.4) / (4 * 3)
    assert metrics.ece_classwise(LOG_PROBS, Y, bins=2) == pytest.approx(expected)


def test_ece_top_label_by_hand():
    # bin (.5, 1]: predicted 0 has .7 right and .6 wrong, predicted 1 has .8 right and .7 wrong
    assert metrics.ece_top_label(LOG_PROBS, Y, bins=2) == pytest.approx((abs(1 - 1.3) + abs(1 - 1.5)) / 4)
    assert metrics.ece(LOG_PROBS, Y, bins=2) == pytest.approx(abs(2 - 2.8) / 4)


def test_degree_binned_error_by_hand():
    degree = torch.tensor([5, 1, 1, 9])  # two pieces: degrees {1, 1} and {5, 9}
    expected = (abs((0 - 0.6) + (1 - 0.8)) + abs((1 - 0.7) + (0 - 0.7))) / 4
    assert metrics.degree_binned_error(LOG_PROBS, Y, degree, bins=2) == pytest.approx(expected)


def test_degree_binned_error_is_blind_to_what_ece_sees():
    conf = torch.tensor([0.95, 0.55] * 50, dtype=torch.float64)
    right = torch.tensor([0.0, 1.0] * 50)
    right[0:100:4], right[1:100:4] = 1.0, 1.0  # .95 is right half the time, .55 always
    log_probs, y = binary(conf, right)
    assert metrics.ece(log_probs, y) == pytest.approx(0.45)
    assert metrics.degree_binned_error(log_probs, y, torch.arange(100) // 20, bins=5) < 1e-9


def test_degree_must_fit():
    with pytest.raises(ValueError, match="degree must have one entry"):
        metrics.degree_binned_error(LOG_PROBS, Y, torch.ones(3))
