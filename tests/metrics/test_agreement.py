"""Every quantity that netcal, scikit-learn or uncertainty-calibration also define agrees with them, over random inputs."""

import warnings

import calibration as cal
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_truth import binary
from netcal.metrics import ECE, MCE
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from graphcal import metrics


@st.composite
def cases(draw):
    """Random predictions; sharp ones have confidences of exactly 0 and 1."""
    seed, C = draw(st.integers(0, 2**31)), draw(st.integers(3, 8))
    N, sharp = draw(st.integers(20, 300)), draw(st.sampled_from([0.3, 1.0, 4.0, 60.0]))
    rng = np.random.default_rng(seed)
    z = sharp * rng.normal(size=(N, C))
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    if sharp == 60.0:
        p = np.where(p > 0.999, 1.0, p)
        p[p.max(1) == 1.0] = np.where(p[p.max(1) == 1.0] == 1.0, 1.0, 0.0)
    y = np.array([rng.choice(C, p=row / row.sum()) for row in p])
    y = np.where(rng.random(N) < 0.3, rng.integers(C, size=N), y)
    y[:C] = np.arange(C)  # netcal wants every class among the labels
    with np.errstate(divide="ignore"):
        return p, y, torch.from_numpy(np.log(p)), torch.from_numpy(y)


many = settings(max_examples=60, deadline=None)


@many
@given(cases(), st.sampled_from([5, 10, 15, 20]))
def test_ece_and_mce_are_netcals(case, bins):
    p, y, log_probs, labels = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert metrics.ece(log_probs, labels, bins) == pytest.approx(ECE(bins).measure(p, y), abs=1e-9)
        assert metrics.mce(log_probs, labels, bins) == pytest.approx(MCE(bins).measure(p, y), abs=1e-9)


@many
@given(cases())
def test_ece_is_that_of_uncertainty_calibration(case):
    p, y, log_probs, labels = case
    assert metrics.ece(log_probs, labels, 15) == pytest.approx(cal.get_ece(p, y, num_bins=15), abs=1e-9)


@many
@given(cases())
def test_equal_mass_ece_is_that_of_uncertainty_calibration(case):
    p, y, log_probs, labels = case
    if len(np.unique(p.max(1))) < len(y):  # the other library splits ties between bins
        return
    expected = cal.lower_bound_scaling_ce(
        p, y, p=1, debias=False, num_bins=10, binning_scheme=cal.get_equal_bins, mode="top-label"
    )
    assert metrics.ece(log_probs, labels, 10, "equal-mass") == pytest.approx(expected, abs=1e-9)


def test_debiased_ece_is_that_of_uncertainty_calibration():
    rng = np.random.default_rng(0)
    conf = 0.5 + 0.5 * rng.random(2000)
    right = (rng.random(2000) < conf - 0.05).astype(float)
    binned = cal.bin(list(zip(conf, right)), [k / 10 for k in range(1, 11)])
    np.random.seed(0)  # noqa: NPY002  the other library draws from the global state
    expected = np.mean([cal.normal_debiased_ce([b for b in binned if len(b)], resamples=2000) for _ in range(5)])
    ours = metrics.ece_debiased(*binary(torch.from_numpy(conf), torch.from_numpy(right)), bins=10)
    assert ours == pytest.approx(expected, abs=3e-4)


@many
@given(cases())
def test_proper_scores_are_scikit_learns(case):
    p, y, log_probs, labels = case
    classes = list(range(p.shape[1]))
    assert metrics.brier(log_probs, labels) == pytest.approx(
        brier_score_loss(y, p / p.sum(1, keepdims=True), labels=classes, scale_by_half=False), abs=1e-9
    )
    if (p[np.arange(len(y)), y] > 1e-12).all():
        assert metrics.nll(log_probs, labels) == pytest.approx(log_loss(y, p, labels=classes), rel=1e-6)


@many
@given(cases())
def test_auroc_is_scikit_learns(case):
    p, y, log_probs, labels = case
    right = p.argmax(1) == y
    ours = metrics.auroc(log_probs, labels)
    if right.all() or not right.any():
        assert np.isnan(ours)
    else:
        assert ours == pytest.approx(roc_auc_score(right, np.exp(np.log(p.max(1)))), abs=1e-9)


@many
@given(cases())
def test_errors_are_in_order_and_add_up(case):
    _, _, log_probs, labels = case
    ece, mce = metrics.ece(log_probs, labels), metrics.mce(log_probs, labels)
    over, under = metrics.overconfidence(log_probs, labels), metrics.underconfidence(log_probs, labels)
    assert over + under == pytest.approx(ece)
    assert under - over == pytest.approx(metrics.signed_gap(log_probs, labels))
    assert abs(under - over) - 1e-12 <= ece <= mce + 1e-12
    assert ece <= metrics.ece_top_label(log_probs, labels) + 1e-12
    assert metrics.smooth_ece(log_probs, labels) <= 1
    assert 0 <= metrics.aurc(log_probs, labels) <= 1
