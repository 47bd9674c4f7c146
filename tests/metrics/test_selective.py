"""Selective metrics by hand and by brute force, ties included; the interval of the coverage covers."""

import doctest
import itertools
import math

import pytest
import torch
from known_truth import binary, confidences, draw, predictions

import graphcal.metrics.selective as module
from graphcal import metrics
from graphcal.metrics.selective import coverage_interval_of, eaurc_of, grouped, oracle_aurc


def risks(conf, right):
    """Error rate among the k most confident nodes, k = 1..N, of distinct confidences."""
    wrong = (1 - right[conf.argsort(descending=True)]).cumsum(0)
    return wrong / torch.arange(1, len(conf) + 1)


def test_aurc_by_hand():
    log_probs, y = binary(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1.0, 0.0, 1.0, 1.0]))
    assert metrics.aurc(log_probs, y) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 4) / 4)


def test_aurc_of_ties_is_the_mean_over_their_orders():
    conf, right = [0.9, 0.7, 0.7, 0.7], [1.0, 0.0, 1.0, 1.0]
    areas = []
    for order in itertools.permutations([1, 2, 3]):
        wrong = torch.tensor([1 - right[0], *(1 - right[i] for i in order)]).cumsum(0)
        areas.append(float((wrong / torch.arange(1, 5)).mean()))
    ours = metrics.aurc(*binary(torch.tensor(conf), torch.tensor(right)))
    assert ours == pytest.approx(sum(areas) / len(areas))


@pytest.mark.parametrize("N", [1, 7, 1000])
def test_aurc_is_the_mean_of_the_risks(N):
    g = torch.Generator().manual_seed(N)
    conf = confidences("even", N, g)
    right = draw(conf, g)
    assert metrics.aurc(*binary(conf, right)) == pytest.approx(float(risks(conf, right).mean()), abs=1e-12)


def test_excess_is_over_the_best_order_of_the_same_predictions():
    g = torch.Generator().manual_seed(0)
    conf = confidences("even", 500, g)
    right = draw(conf, g)
    best = float((1 - right.sort(descending=True).values).cumsum(0).div(torch.arange(1, 501)).mean())
    assert oracle_aurc(500, float((1 - right).sum())) == pytest.approx(best, abs=1e-12)
    excess = metrics.eaurc(*binary(conf, right))
    assert excess == pytest.approx(float(risks(conf, right).mean()) - best, abs=1e-12)
    assert excess > 0.01


def test_the_best_order_has_no_excess_and_its_area_is_the_known_limit():
    """1/N Σ tends to r + (1 - r) ln(1 - r), the optimum of Geifman et al."""
    count, r = torch.ones(20_000, dtype=torch.float64), 0.2
    good = (torch.arange(20_000) < 16_000).double()
    assert eaurc_of(count, good) == pytest.approx(0, abs=1e-12)
    assert oracle_aurc(20_000, 4_000) == pytest.approx(r + (1 - r) * math.log(1 - r), abs=1e-4)
    assert oracle_aurc(10, 0) == 0


def test_a_temperature_changes_none_of_them():
    (a, y), (b, _) = predictions(700, C=2), predictions(700, C=2, scale=0.3)
    for f in (metrics.aurc, metrics.eaurc, metrics.coverage_at, metrics.coverage_interval):
        assert f(a, y) == f(b, y)


@pytest.mark.parametrize("error", [0.02, 0.05, 0.2])
def test_coverage_is_the_last_risk_that_is_small_enough(error):
    g = torch.Generator().manual_seed(3)
    conf = confidences("high", 2000, g)
    right = draw(conf, g)
    enough = (risks(conf, right) <= error).nonzero()
    assert metrics.coverage_at(*binary(conf, right), error) == (int(enough[-1]) + 1) / 2000


def test_a_tie_is_decided_whole_or_not_at_all():
    conf, right = torch.tensor([0.9, 0.8, 0.8, 0.8, 0.8]), torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0])
    assert metrics.coverage_at(*binary(conf, right), 0.1) == pytest.approx(0.2)
    assert metrics.coverage_at(*binary(conf, right), 0.2) == 1.0  # exactly one in five
    assert metrics.coverage_at(*binary(conf[1:], right[1:]), 0.1) == 0.0


SHAPES = {"even": 0.2, "high": 0.7368}  # with truth = confidence, the share of which 5 % are wrong


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_of_the_coverage_cover_on_both_sides(shape):
    g, low_misses, high_misses, runs = torch.Generator().manual_seed(0), 0, 0, 1500
    for _ in range(runs):
        conf = confidences(shape, 1000, g)
        low, high = coverage_interval_of(*grouped(conf, draw(conf, g)), 0.05, 0.95)
        low_misses += SHAPES[shape] < low
        high_misses += SHAPES[shape] > high
    assert 0.01 <= low_misses / runs <= 0.04
    assert 0.01 <= high_misses / runs <= 0.04


def test_the_interval_narrows_with_nodes_and_widens_with_its_level():
    (few, y), (many, more) = predictions(300), predictions(30_000)
    a, b, c = (metrics.coverage_interval(*rows) for rows in ((few, y), (many, more), (few, y)))
    assert b[1] - b[0] < (a[1] - a[0]) / 4
    assert a == c
    wide = metrics.coverage_interval(few, y, level=0.99)
    assert wide[0] <= a[0] <= metrics.coverage_at(few, y) <= a[1] < wide[1]


def test_bad_errors_and_levels_are_refused():
    log_probs, y = predictions(50)
    for f in (metrics.coverage_at, metrics.coverage_interval):
        with pytest.raises(ValueError, match="error must lie between 0 and 1, got 5"):
            f(log_probs, y, 5)
    with pytest.raises(ValueError, match="level must lie between 0 and 1, got 95"):
        metrics.coverage_interval(log_probs, y, level=95)


def test_the_examples_in_the_docstrings_run():
    assert doctest.testmod(module).failed == 0
