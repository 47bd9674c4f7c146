"""The floor is right, by simulation and by brute force; debiasing removes bias; the test keeps its level."""

import itertools
import math

import pytest
import torch
from known_truth import binary, confidences, draw, predictions

from graphcal.metrics import calibration_test, ece, ece_debiased, ece_floor, floor_interval, inputs
from graphcal.metrics.bins import bin_of, equal_width_edges
from graphcal.metrics.floor import abs_deviations, brownian_max_sf, expected_abs_normal, floor_of, mean_abs_deviation


def simulated_floor(conf, draws, generator):
    """Mean ECE of so many calibrated drawings."""
    member = torch.nn.functional.one_hot(bin_of(conf, equal_width_edges(20)), 20).double()
    total = 0.0
    for _ in range(draws // 100):
        right = (torch.rand(100, len(conf), generator=generator, dtype=torch.float64) < conf).double()
        total += float((((right - conf) @ member).abs().sum(1) / len(conf)).sum())
    return total / draws


@pytest.mark.parametrize("shape", ["even", "high", "low"])
@pytest.mark.parametrize("N", [100, 1000])
def test_floor_is_right_to_a_twentieth_of_a_point(shape, N):
    g = torch.Generator().manual_seed(N)
    conf = confidences(shape, N, g)
    floor = ece_floor(binary(conf, torch.ones(N))[0])
    assert floor == pytest.approx(simulated_floor(conf, 4000, g), abs=0.0005 if N >= 1000 else 0.0012)


def test_deviation_is_exact_against_all_outcomes():
    conf = torch.tensor([0.9, 0.35, 0.6, 0.99, 0.5], dtype=torch.float64)
    expected = 0.0
    for outcome in itertools.product([0, 1], repeat=5):
        chance = math.prod(float(c) if o else 1 - float(c) for c, o in zip(conf, outcome))
        expected += chance * abs(sum(outcome) - float(conf.sum()))
    assert mean_abs_deviation(conf) == pytest.approx(expected, abs=1e-12)


def test_deviation_passes_smoothly_to_the_normal_law():
    below, above = torch.full((395,), 0.5, dtype=torch.float64), torch.full((405,), 0.5, dtype=torch.float64)
    slope = mean_abs_deviation(above) / mean_abs_deviation(below)
    assert slope == pytest.approx(math.sqrt(405 / 395), rel=2e-3)


@pytest.mark.parametrize("conf", [0.0, 1.0])
def test_certain_predictions_have_no_floor(conf):
    assert floor_of(torch.full((50,), conf), equal_width_edges(20)) == 0.0


def test_floor_falls_as_the_root_of_the_number_of_nodes():
    g = torch.Generator().manual_seed(0)
    conf = confidences("even", 4000, g)
    few, many = (floor_of(conf[:N], equal_width_edges(20)) for N in (1000, 4000))
    assert few / many == pytest.approx(2, rel=0.06)


def test_a_million_nodes_use_the_normal_law_and_agree():
    conf = 0.5 + 0.5 * torch.rand(1_000_001, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    edges = equal_width_edges(20)
    assert floor_of(conf, edges) == pytest.approx(floor_of(conf[:1_000_000], edges), rel=1e-3)


def test_floor_interval_holds_calibrated_errors():
    g = torch.Generator().manual_seed(0)
    conf = confidences("even", 1000, g)
    low, high = floor_interval(binary(conf, torch.ones(1000))[0], draws=2000, generator=g)
    inside = [low <= ece(*binary(conf, draw(conf, g))) <= high for _ in range(400)]
    assert 0.92 <= sum(inside) / 400 <= 0.98


def test_expected_absolute_normal():
    x = torch.randn(2_000_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for mean, sd in ((0.0, 1.0), (0.5, 1.0), (3.0, 0.2)):
        ours = float(expected_abs_normal(torch.tensor(mean).double(), torch.tensor(sd).double()))
        assert ours == pytest.approx(float((mean + sd * x).abs().mean()), abs=2e-3)
    assert float(expected_abs_normal(torch.tensor(-0.3).double(), torch.tensor(0.0).double())) == pytest.approx(0.3)


@pytest.mark.parametrize(("offset", "left"), [(0.0, 0.65), (0.04, 0.65)])
def test_debiasing_removes_bias(offset, left):
    g = torch.Generator().manual_seed(1)
    plain, debiased = [], []
    for _ in range(150):
        conf = confidences("even", 1000, g) * 0.9 + 0.05
        data = binary(conf, draw(conf - offset, g))
        plain.append(ece(*data))
        debiased.append(ece_debiased(*data))
    bias = sum(plain) / 150 - offset
    assert bias > 0.005
    assert abs(sum(debiased) / 150 - offset) < left * bias


def rejected(shape, offset, simulations, statistic="cumulative"):
    g = torch.Generator().manual_seed(11)
    rejections = 0
    for _ in range(simulations):
        conf = confidences(shape, 1000, g) * 0.9 + 0.05
        data = binary(conf, draw(conf - offset, g))
        rejections += calibration_test(*data, statistic, draws=99, generator=g).p <= 0.05
    return rejections / simulations


@pytest.mark.slow_cases("even", "high")
@pytest.mark.parametrize("shape", ["even", "high"])
def test_calibrated_models_are_rejected_at_the_stated_rate(shape):
    assert 0.03 <= rejected(shape, 0.0, 1000) <= 0.07


@pytest.mark.slow
def test_the_binned_statistic_keeps_the_level_too():
    assert 0.03 <= rejected("even", 0.0, 800, "ece") <= 0.07


@pytest.mark.slow_cases("0.05")
@pytest.mark.parametrize("offset", [0.05, -0.05])
def test_five_points_are_found_on_a_thousand_nodes(offset):
    assert rejected("even", offset, 300) > 0.9


def test_an_unknown_statistic_is_refused():
    conf = torch.full((20,), 0.8, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"statistic must be one of cumulative, ece, got 'ks'"):
        calibration_test(*binary(conf, torch.ones(20)), statistic="ks")


def test_p_is_never_zero_and_says_how_many_draws_it_had():
    test = calibration_test(*binary(torch.full((500,), 0.9, dtype=torch.float64), torch.zeros(500)), draws=99)
    assert test.p == pytest.approx(0.01)
    assert test.to_dict()["draws"] == 99


@pytest.mark.slow_cases("ece")
@pytest.mark.parametrize("statistic", ["cumulative", "ece"])
def test_p_values_of_many_nodes_are_those_of_drawn_labels(statistic, monkeypatch):
    """A Brownian motion or normal bins in place of draws: the same p-values, and 5 % of calibrated models rejected."""
    g, pairs = torch.Generator().manual_seed(0), []
    for shift in torch.linspace(0, 0.04, 9).tolist():
        conf = confidences("even", 2000, g)
        data = binary(conf, draw(conf - shift, g))
        monkeypatch.setattr(inputs, "RESAMPLE_UP_TO", 20_000)
        drawn = calibration_test(*data, statistic, draws=2000)
        monkeypatch.setattr(inputs, "RESAMPLE_UP_TO", 100)
        limit = calibration_test(*data, statistic, draws=2000)
        assert limit.observed == pytest.approx(drawn.observed)
        assert limit.expected == pytest.approx(drawn.expected, rel=0.05)
        pairs.append((limit.p, drawn.p))
    assert all(a == pytest.approx(b, abs=0.05) for a, b in pairs)
    assert min(b for _, b in pairs) < 0.01 < 0.2 < max(b for _, b in pairs)
    rejected = 0
    for _ in range(400):
        conf = confidences("high", 1000, g)
        rejected += calibration_test(*binary(conf, draw(conf, g)), statistic, draws=200).p <= 0.05
    assert 0.028 <= rejected / 400 <= 0.08


def test_a_brownian_motion_leaves_its_interval_as_often_as_a_walk():
    walks = torch.randn(4000, 2000, generator=torch.Generator().manual_seed(0)).cumsum(1).abs().amax(1) / 2000**0.5
    for x in (0.5, 1.0, 1.5, 2.5):
        assert brownian_max_sf(x) == pytest.approx(float((walks > x).double().mean()), abs=0.03)
    assert brownian_max_sf(0.01) == 1.0
    assert 0 < brownian_max_sf(8.0) < 1e-14


def test_the_interval_of_the_floor_is_the_same_for_many_nodes(monkeypatch):
    log_probs, _ = predictions(3000)
    drawn = floor_interval(log_probs, draws=3000)
    monkeypatch.setattr(inputs, "RESAMPLE_UP_TO", 100)
    assert floor_interval(log_probs, draws=3000) == pytest.approx(drawn, abs=0.0012)


def test_a_model_that_is_certain_and_right_is_calibrated_however_many_nodes():
    certain = torch.tensor([[0.0, -torch.inf]]).double().repeat(20_001, 1)
    assert calibration_test(certain, torch.zeros(20_001, dtype=torch.long)).p == 1.0
    y = torch.zeros(20_001, dtype=torch.long)
    y[0] = 1
    assert calibration_test(certain, y).p == 0.0


def test_deviations_of_cells_are_those_of_their_nodes():
    g = torch.Generator().manual_seed(0)
    conf, cell = confidences("even", 3000, g), torch.randint(7, (3000,), generator=g) * (torch.arange(3000) > 900)
    deviations = abs_deviations(conf, cell, 8)
    for k in range(8):
        assert float(deviations[k]) == pytest.approx(mean_abs_deviation(conf[cell == k]), abs=1e-12)
