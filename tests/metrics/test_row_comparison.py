"""`compare_rows`: false alarms, power, designs, and the covariate that is named."""

import doctest

import numpy as np
import pytest

from graphcal.metrics import row_comparison
from graphcal.metrics.row_comparison import LEVEL, compare_rows, prediction_covariates


def rows(nodes, classes, rng):
    z = 2 * rng.standard_normal((nodes, classes))
    log_probs = z - np.log(np.exp(z).sum(1, keepdims=True))
    return prediction_covariates(log_probs, degree=rng.poisson(3, nodes), time=rng.random(nodes))


def compared(columns, labelled, **design):
    pairs = {name: (values[labelled], values[~labelled]) for name, values in design.items()}
    return compare_rows(
        {k: v[labelled] for k, v in columns.items()}, {k: v[~labelled] for k, v in columns.items()}, **pairs
    )


def simple(nodes, labels, rng):
    mask = np.zeros(nodes, bool)
    mask[rng.choice(nodes, labels, replace=False)] = True
    return mask


def p_values(times, nodes=1500, labels=150, design="simple", seed=0):
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(times):
        columns = rows(nodes, 3, rng)
        if design == "simple":
            values.append(compared(columns, simple(nodes, labels, rng)).p)
            continue
        chance = np.where(columns["confidence"] > 0.7, 0.3, 0.03)
        groups = (chance > 0.1).astype(int)
        mask = rng.random(nodes) < chance
        extra = {"inclusion": chance} if design == "inclusion" else {"strata": groups}
        values.append(compared(columns, mask, **extra).p)
    return np.array(values)


@pytest.mark.slow
@pytest.mark.parametrize("design", ["simple", "strata", "inclusion"])
@pytest.mark.parametrize(("nodes", "labels"), [(1500, 150), (300, 40)])
def test_false_alarms_are_at_most_one_percent(design, nodes, labels):
    p = p_values(1000, nodes, labels, design)
    assert np.mean(p <= LEVEL) <= 0.01
    for level in (0.05, 0.2, 0.5):
        assert np.mean(p <= level) <= level + 3.5 * np.sqrt(level * (1 - level) / 1000)


@pytest.mark.slow_cases("simple", "strata")
@pytest.mark.parametrize("design", ["simple", "strata", "inclusion"])
def test_random_draws_are_rarely_refused(design):
    p = p_values(100, design=design)
    assert np.mean(p <= LEVEL) <= 0.03
    assert np.mean(p <= 0.2) <= 0.2 + 3.5 * 0.04


def test_labels_chosen_by_the_score_are_noticed_and_named():
    rng = np.random.default_rng(1)
    columns = rows(2000, 2, rng)
    picked = rng.random(2000) < 0.2 * columns["probability of class 1"]
    comparison = compared(columns, picked)
    assert comparison.differ
    assert comparison.auc > 0.6
    assert comparison.covariate == "probability of class 1"
    assert comparison.labelled > comparison.others
    means = [f"{columns['probability of class 1'][mask].mean():.2g}" for mask in (picked, ~picked)]
    assert (
        comparison.text()
        == f"mean probability of class 1 is {means[0]} in the labelled rows and {means[1]} in the others"
    )


def test_hubs_and_late_labels_are_noticed():
    rng = np.random.default_rng(2)
    columns = rows(2000, 2, rng)
    hubs = rng.random(2000) < 0.05 * columns["degree"]
    assert compared(columns, hubs).covariate == "degree"
    assert compared(columns, hubs).differ
    columns["time"] = np.datetime64("2026-01-01") + (columns["time"] * 360).astype("timedelta64[D]")
    late = (columns["time"] < np.datetime64("2026-10-01")) & (rng.random(2000) < 0.2)
    comparison = compared(columns, late)
    assert comparison.differ
    assert comparison.covariate == "time"
    assert "time lies around 2026-0" in comparison.text()


def test_an_undeclared_design_is_noticed_and_the_declared_one_accepted():
    rng = np.random.default_rng(3)
    columns = rows(3000, 3, rng)
    chance = np.where(columns["confidence"] > 0.7, 0.3, 0.03)
    mask = rng.random(3000) < chance
    assert compared(columns, mask).differ
    assert not compared(columns, mask, strata=(chance > 0.1).astype(int)).differ
    assert not compared(columns, mask, inclusion=chance).differ
    tilted = mask & ((columns["probability of class 0"] > 0.3) | (rng.random(3000) < 0.5))
    assert compared(columns, tilted, strata=(chance > 0.1).astype(int)).differ


def test_few_rows_tell_nothing():
    assert compare_rows({"x": np.zeros(5)}, {"x": np.ones(500)}).p == 1.0


def test_gaps_in_time_count():
    rng = np.random.default_rng(4)
    time = rng.random(1000)
    time[rng.random(1000) < 0.5] = np.nan
    assert compared({"time": time}, np.isnan(time) & (rng.random(1000) < 0.5)).differ


def test_the_example():
    assert doctest.testmod(row_comparison).failed == 0
