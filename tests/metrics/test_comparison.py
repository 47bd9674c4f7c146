"""Paired comparison: coverage, level, Holm."""

import pytest
import torch
from known_truth import predictions

from graphcal.metrics import compare, compare_all, ece, holm
from graphcal.metrics.comparison import sampling_errors, seed_noise, terms


def pairs(scale_a, scale_b, simulations, N=1000):
    """ECE and the comparison of two temperatures on fresh nodes each time."""
    g, drawn = torch.Generator().manual_seed(4), []
    for _ in range(simulations):
        z = 2 * torch.randn(N, 5, generator=g, dtype=torch.float64)
        y = torch.multinomial(z.softmax(1), 1, generator=g)[:, 0]
        a, b = (scale_a * z).log_softmax(1), (scale_b * z).log_softmax(1)
        drawn.append((ece(a, y) - ece(b, y), compare(a, b, y, draws=200, generator=g)))
    return drawn


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.08), (0.6, 1.0), (0.8, 1.3)])
def test_intervals_cover_the_expected_difference(a, b):
    drawn = pairs(a, b, 600)
    expected = sum(d for d, _ in drawn) / len(drawn)
    assert 0.9 <= sum(c.low <= expected <= c.high for _, c in drawn) / len(drawn) <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.2, 1.0])
@pytest.mark.parametrize("seeds", [1, 3])
def test_models_of_equal_ece_are_told_apart_in_five_percent(noise, seeds):
    """The error must not be that of noise on noisy gaps: resampling around the observed gaps rejects in 1 to 2 % only."""
    g, sets, told, seen, believed = torch.Generator().manual_seed(9), 300, 0, [], []
    for _ in range(sets):
        z = 2 * torch.randn(1000, 5, generator=g, dtype=torch.float64)
        y = torch.multinomial(z.softmax(1), 1, generator=g)[:, 0]
        a, b = (
            [(z + noise * torch.randn(z.shape, generator=g, dtype=torch.float64)).log_softmax(1) for _ in range(seeds)]
            for _ in range(2)
        )
        values, errors = sampling_errors([a, b], y, "ece", 20, 200, g)
        error = errors[:, 0] - errors[:, 1]
        seen.append(float(values[0].mean() - values[1].mean()))
        believed.append(float(error.std()))
        told += abs(seen[-1]) > 1.96 * believed[-1]
    assert 0.02 <= told / sets <= 0.08
    assert sum(believed) / sets == pytest.approx(float(torch.tensor(seen).std()), rel=0.12)


def test_a_large_difference_is_found_and_has_the_right_sign():
    (difference, c), *_ = pairs(0.5, 1.0, 1)
    assert c.difference == pytest.approx(difference)
    assert 0.05 < c.low < c.difference < c.high
    assert c.p < 0.05


@pytest.mark.parametrize("metric", ["ece", "nll", "brier", "accuracy"])
@pytest.mark.parametrize("N", [50, 400, 1003])
def test_a_method_does_not_differ_from_itself(metric, N):
    """Not even in the last bit of a product of matrices, which adds equal columns in different orders."""
    log_probs, y = predictions(N)
    c = compare(log_probs, log_probs, y, metric)
    assert (c.difference, c.p) == (0.0, 1.0)


@pytest.mark.parametrize("metric", ["nll", "brier"])
def test_means_are_compared_node_by_node(metric):
    calibrated, y = predictions(3000)
    sharp, _ = predictions(3000, scale=1.6)
    c = compare(sharp, calibrated, y, metric)
    assert c.low > 0
    assert c.p < 0.01


def test_seeds_that_disagree_widen_the_interval():
    calibrated, y = predictions(1500)
    scales = (0.7, 1.0, 1.3, 1.6)
    spread = [predictions(1500, scale=s)[0] for s in scales]
    even = [predictions(1500, scale=1.15)[0]] * 4
    wide, narrow = (compare(m, [calibrated] * 4, y) for m in (spread, even))
    assert wide.sd > 1.5 * narrow.sd
    assert wide.seeds == 4


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_many_methods_are_corrected_together():
    y = predictions(1500)[1]
    methods = {name: [predictions(1500, scale=s)[0]] for name, s in (("none", 0.6), ("a", 1.0), ("b", 0.61))}
    compared = compare_all(methods, "none", y)
    assert set(compared) == {"a", "b"}
    assert compared["a"].p >= compare(methods["a"], methods["none"], y).p
    with pytest.raises(ValueError, match="against must be one of none, a, b, got 'ts'"):
        compare_all(methods, "ts", y)


def test_bad_comparisons_are_refused():
    log_probs, y = predictions(100)
    with pytest.raises(ValueError, match="same seeds, one tensor for each; got 2 and 1"):
        compare([log_probs] * 2, [log_probs], y)
    with pytest.raises(ValueError, match=r"metric must be one of ece, nll, brier, accuracy, got 'mce'"):
        compare(log_probs, log_probs, y, "mce")


def test_the_interval_is_turned_around_the_difference():
    """Errors with a long tail upwards: the estimate may be far too high, so the interval reaches far down, not up."""
    y = torch.zeros(40, dtype=torch.long)
    plain = torch.tensor([[0.5, 0.5]], dtype=torch.float64).log().repeat(40, 1)
    rare = plain.clone()
    rare[0] = torch.tensor([1e-9, 1 - 1e-9], dtype=torch.float64).log()  # one node has nearly all of the loss
    c = compare(rare, plain, y, "nll", draws=4000)
    assert c.difference - c.low > 1.5 * (c.high - c.difference)


@pytest.mark.parametrize("seeds", [2, 5])
def test_the_scatter_of_seeds_is_that_of_their_mean(seeds):
    by_seed = torch.randn(seeds, generator=torch.Generator().manual_seed(seeds), dtype=torch.float64)
    drawn = seed_noise(by_seed, 40_000, torch.Generator().manual_seed(0))
    assert float(drawn.std()) == pytest.approx(float(by_seed.std()) / seeds**0.5, rel=0.03)  # std has R - 1 below
    assert not seed_noise(by_seed[:1], 10, torch.Generator()).any()


@pytest.mark.parametrize("metric", ["ece", "nll", "brier", "accuracy"])
def test_many_nodes_give_what_resampling_gives(metric, monkeypatch):
    calibrated, y = predictions(3000)
    sharp = predictions(3000, scale=1.6)[0].roll(1, 1)  # other predictions
    drawn = compare(sharp, calibrated, y, metric, draws=3000)
    monkeypatch.setattr("graphcal.metrics.inputs.RESAMPLE_UP_TO", 100)
    normal = compare(sharp, calibrated, y, metric, draws=3000)
    assert normal.difference == pytest.approx(drawn.difference)
    assert normal.sd == pytest.approx(drawn.sd, rel=0.06)
    assert (normal.low, normal.high) == pytest.approx((drawn.low, drawn.high), abs=0.3 * drawn.sd)


@pytest.mark.parametrize("metric", ["ece", "nll"])
def test_a_method_does_not_differ_from_itself_on_many_nodes(metric):
    log_probs, y = predictions(20_001, C=3)
    c = compare(log_probs, log_probs.clone(), y, metric)
    assert (c.difference, c.p) == (0.0, 1.0)


@pytest.mark.parametrize("resampled", [True, False])
def test_the_p_value_has_two_sides_and_is_that_of_a_z_test(resampled, monkeypatch):
    """Means over many nodes: p is 2 (1 - Phi(|z|)), whether nodes are drawn again or their error is taken for normal."""
    monkeypatch.setattr("graphcal.metrics.inputs.RESAMPLE_UP_TO", 10**6 if resampled else 10)
    a, y = predictions(1500)
    g = torch.Generator().manual_seed(0)
    b = (a + 0.3 * torch.randn(a.shape, generator=g)).log_softmax(1)
    each = terms(a, y, "nll") - terms(b, y, "nll")
    for wanted in (0.0, 0.7, -1.3):  # shift one method until z is this
        shift = wanted * float(each.std()) / 1500**0.5 - float(each.mean())
        monkeypatch.setattr(
            "graphcal.metrics.comparison.terms", lambda p, *_, s=shift: each + s if p is a else torch.zeros(1500)
        )
        c = compare(a, b, y, "nll", draws=4000, generator=g)
        normal = torch.distributions.Normal(0.0, 1.0)
        assert c.p == pytest.approx(2 * (1 - float(normal.cdf(torch.tensor(abs(wanted))))), abs=0.04)
        assert (c.high - c.low) == pytest.approx(2 * 1.96 * float(each.std()) / 1500**0.5, rel=0.06)
