"""The test of calibration keeps its level and finds five points; the bands are what their names say."""

import pytest
import torch
from known_truth import binary, confidences, draw

from graphcal.metrics import accuracy_interval, calibration_test, consistency_band, reliability


def rejected(shape, offset, simulations, statistic="cumulative"):
    g = torch.Generator().manual_seed(11)
    found = 0
    for _ in range(simulations):
        conf = confidences(shape, 1000, g) * 0.9 + 0.05
        data = binary(conf, draw(conf - offset, g))
        found += calibration_test(*data, statistic, draws=99, generator=g).p <= 0.05
    return found / simulations


@pytest.mark.parametrize("shape", ["even", "high"])
def test_calibrated_models_are_rejected_at_the_stated_rate(shape):
    assert 0.03 <= rejected(shape, 0.0, 1000) <= 0.07


def test_the_binned_statistic_keeps_the_level_too():
    assert 0.03 <= rejected("even", 0.0, 800, "ece") <= 0.07


@pytest.mark.parametrize("offset", [0.05, -0.05])
def test_five_points_are_found_on_a_thousand_nodes(offset):
    assert rejected("even", offset, 300) > 0.9


def test_an_unknown_statistic_is_refused():
    conf = torch.full((20,), 0.8, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"statistic must be one of cumulative, ece, got 'ks'"):
        calibration_test(*binary(conf, torch.ones(20)), statistic="ks")


def test_p_is_never_zero_and_says_how_many_draws_it_had():
    found = calibration_test(*binary(torch.full((500,), 0.9, dtype=torch.float64), torch.zeros(500)), draws=99)
    assert found.p == pytest.approx(0.01)
    assert found.to_dict()["draws"] == 99


def test_consistency_band_holds_calibrated_bins():
    g, inside, bins = torch.Generator().manual_seed(2), 0, 0
    for _ in range(200):
        conf = confidences("even", 2000, g)
        rel = reliability(*binary(conf, draw(conf, g)), bins=10)
        low, high = consistency_band(rel)
        full = rel.count > 0
        inside += int(((rel.accuracy >= low) & (rel.accuracy <= high))[full].sum())
        bins += int(full.sum())
    assert 0.93 <= inside / bins <= 0.985


def test_accuracy_interval_holds_the_true_accuracy():
    g, inside, bins = torch.Generator().manual_seed(2), 0, 0
    for _ in range(200):
        conf = confidences("even", 500, g)
        rel = reliability(*binary(conf, draw(conf - 0.1, g)), bins=10)
        low, high = accuracy_interval(rel)
        full = rel.count > 0
        truth = rel.conf - 0.1
        inside += int(((truth >= low) & (truth <= high))[full].sum())
        bins += int(full.sum())
    assert 0.94 <= inside / bins <= 0.99


def test_clopper_pearson_at_the_ends():
    rel = reliability(*binary(torch.full((10,), 0.9, dtype=torch.float64), torch.ones(10)), bins=1)
    low, high = accuracy_interval(rel)
    assert float(low) == pytest.approx(0.025 ** (1 / 10), abs=1e-9)
    assert float(high) == 1.0
