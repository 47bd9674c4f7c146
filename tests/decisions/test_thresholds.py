"""The certified threshold keeps its promise, by simulation, and decides more than the references."""

import numpy as np
import pytest
from reference_rules import naive_threshold, sgr_threshold
from simulated_draws import SAYS, SHAPES, broken_at_most, draws

from graphcal.decisions.thresholds import certified_set, first_set, nested_sets, walk, with_more_labels

TIMES, NODES, LABELS, RISK = 1000, 1500, 500, 0.05


def decided(conf, wrong, certify, max_error, strata=None, future=False):
    sets = nested_sets(conf, wrong, certify, np.ones(len(conf), bool), strata)
    last = certified_set(sets, max_error, RISK, future)
    return np.zeros(len(conf), bool) if last is None else (conf >= sets.threshold[last]) & ~certify


@pytest.mark.slow_cases(
    "fraud-under-confident",
    "fraud-over-confident",
    "two groups-under-confident",
    "citation-under-confident",
    "two groups-calibrated",
    "citation-calibrated",
    "two groups-over-confident",
    "citation-over-confident",
)
@pytest.mark.parametrize("says", SAYS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_error_target_is_broken_as_rarely_as_promised(shape, says):
    broken, size = 0, 0
    for conf, wrong, certify in draws(shape, says, 600, 200, TIMES):
        approved = decided(conf, wrong, certify, 0.1)
        broken += wrong[approved].sum() > 0.1 * approved.sum()
        size += approved.sum()
    assert broken / TIMES <= broken_at_most(RISK, TIMES)
    assert size > 0


@pytest.mark.slow
def test_future_nodes_of_the_same_source():
    """The true risk above the threshold, not the one realised in the pool."""
    broken, rng = 0, np.random.default_rng(0)
    for _ in range(TIMES):
        right = SHAPES["citation"](rng, 600)
        wrong = rng.random(600) > right
        nested = nested_sets(right, wrong, np.arange(600) < 500, np.ones(600, bool))
        last = certified_set(nested, 0.05, RISK, future=True)
        if last is not None:
            new = SHAPES["citation"](rng, 4000)
            broken += np.mean(1 - new[new >= nested.threshold[last]]) > 0.05
    assert 0 < broken / TIMES <= broken_at_most(RISK, TIMES)


@pytest.mark.slow
def test_strata_of_unequal_rates_keep_the_promise():
    """Half of the labels are spent on a tenth of the nodes; counted as one simple draw the promise would be broken."""
    rng, times = np.random.default_rng(3), 150
    broken = {"strata": 0, "ignored": 0}
    for _ in range(times):
        stratum = (rng.random(NODES) < 0.1).astype(int)
        right = np.where(stratum == 1, 0.999, 0.93)
        conf, wrong = 0.95 + 0.01 * rng.random(NODES), rng.random(NODES) > right
        certify = np.zeros(NODES, bool)
        for h in (0, 1):
            members = np.flatnonzero(stratum == h)
            certify[rng.permutation(members)[: min(len(members) - 1, 300)]] = True
        for name, strata in (("strata", stratum), ("ignored", None)):
            approved = decided(conf, wrong, certify, 0.07, strata)
            broken[name] += wrong[approved].sum() > 0.07 * approved.sum()
    assert broken["strata"] / times <= broken_at_most(RISK, times)
    assert broken["ignored"] > broken["strata"]


@pytest.mark.parametrize("shape", ["citation", "fraud"])
def test_it_decides_more_than_sgr_and_the_naive_rule_breaks_its_promise(shape):
    ours, sgr, naive_broken, times = 0, 0, 0, 200
    for conf, wrong, certify in draws(shape, "calibrated", NODES, LABELS, times, seed=7):
        ours += decided(conf, wrong, certify, 0.05).sum()
        sgr += ((conf >= sgr_threshold(conf[certify], wrong[certify], 0.05, RISK)) & ~certify).sum()
        approved = (conf >= naive_threshold(conf[certify], wrong[certify], 0.05)) & ~certify
        naive_broken += wrong[approved].sum() > 0.05 * approved.sum()
    if shape == "citation":  # where not nearly everything can be decided anyway
        assert ours >= 1.3 * sgr
        assert naive_broken / times > 0.3
    assert ours >= sgr


def test_the_walk_starts_where_no_label_is_read_and_stops_at_the_first_failure():
    rng = np.random.default_rng(0)
    conf, certify, pool = rng.random(800), np.arange(800) < 200, np.ones(800, bool)
    starts = {first_set(nested_sets(conf, rng.random(800) > 0.5, certify, pool), 0.1, RISK) for _ in range(5)}
    assert len(starts) == 1
    passed = np.array([0, 1, 1, 0, 1], bool)
    assert [walk(passed, first) for first in range(5)] == [None, 2, 2, None, 4]


def test_sets_count_what_they_say():
    conf = np.array([0.9, 0.8, 0.8, 0.7, 0.6, 0.95])
    wrong = np.array([0, 1, 0, 0, 1, 1], bool)
    certify = np.array([1, 1, 0, 1, 0, 0], bool)
    pool = np.array([1, 1, 1, 1, 1, 0], bool)
    sets = nested_sets(conf, wrong, certify, pool)
    assert sets.threshold.tolist() == [0.9, 0.8, 0.7, 0.6]  # equal confidences come together; 0.95 is outside the pool
    assert sets.nodes.tolist() == [[1, 3, 4, 5]]
    assert sets.labelled.tolist() == [[1, 2, 3, 3]]
    assert sets.wrong.tolist() == [[0, 1, 1, 1]]
    np.testing.assert_allclose(sets.uncertainty, [0.1, 0.5 / 3, 0.2, 0.24])
    held = nested_sets(conf, wrong, certify, pool, held=conf == 0.8)
    assert held.nodes.tolist() == [[1, 2, 3]]
    more = with_more_labels(sets, 2.0)
    assert more.labelled.tolist() == [[1, 3, 4, 5]]


def adversarial(f, rate, shape, times, labels=200, max_error=0.1):
    """Share of draws in which the walk breaks its target: a share ``f`` of the pool is labelled, errors near the target."""
    rng, nodes, broken = np.random.default_rng(11), round(labels / f), 0
    for _ in range(times):
        conf = np.linspace(0.99, 0.8, nodes)
        slope = {"flat": 0.0, "rising": 0.5, "falling": -0.5}[shape]
        chance = np.clip(rate * (1 + slope * np.linspace(-1, 1, nodes)), 0, 1)
        wrong = rng.random(nodes) < chance
        certify = np.zeros(nodes, bool)
        certify[rng.choice(nodes, labels, replace=False)] = True
        approved = decided(conf, wrong, certify, max_error)
        broken += approved.any() and wrong[approved].mean() > max_error
    return broken / times


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["flat", "rising", "falling"])
@pytest.mark.parametrize("rate", [0.09, 0.1, 0.12])
@pytest.mark.parametrize("f", [0.1, 0.5, 0.95])
def test_the_walk_keeps_its_level_in_settings_built_to_break_it(f, rate, shape):
    assert adversarial(f, rate, shape, 1000) <= broken_at_most(RISK, 1000)


def test_the_walk_keeps_its_level_at_the_target():
    assert adversarial(0.5, 0.1, "flat", 200) <= broken_at_most(RISK, 200)
