"""Rows that come in pieces give the numbers of rows that come at once."""

import pytest
import torch
from known_truth import predictions

from graphcal import metrics
from graphcal.metrics import Tally


@pytest.fixture(scope="module")
def both():
    log_probs, y = predictions(5000, C=6, scale=0.7)
    parts = [Tally.of(lp, labels) for lp, labels in zip(log_probs.split(777), y.split(777))]
    return log_probs, y, sum(parts[1:], start=parts[0])


@pytest.mark.parametrize(
    "name",
    [
        "accuracy",
        "ece",
        "mce",
        "ece_debiased",
        "overconfidence",
        "underconfidence",
        "ece_classwise",
        "ece_top_label",
        "nll",
        "brier",
        "smooth_ece",
        "kde_ece",
    ],
)
def test_pieces_equal_the_whole(both, name):
    log_probs, y, tally = both
    assert getattr(tally, name) == pytest.approx(getattr(metrics, name)(log_probs, y), abs=1e-9)


@pytest.mark.parametrize(("name", "within"), [("auroc", 5e-4), ("aurc", 5e-4), ("eaurc", 5e-4)])
def test_ranking_is_right_to_a_cell(both, name, within):
    log_probs, y, tally = both
    assert getattr(tally, name) == pytest.approx(getattr(metrics, name)(log_probs, y), abs=within)


def test_floor_and_interval_need_only_the_sums(both):
    log_probs, y, tally = both
    assert tally.ece_floor == pytest.approx(metrics.ece_floor(log_probs), rel=0.01)
    assert tally.interval() == pytest.approx(metrics.ece_interval(log_probs, y), abs=0.004)


def test_order_does_not_matter(both):
    log_probs, y, tally = both
    back = Tally.of(log_probs[2500:], y[2500:]) + Tally.of(log_probs[:2500], y[:2500])
    for name, value in tally.to_dict().items():
        assert back.to_dict()[name] == pytest.approx(value, rel=1e-9), name


def test_the_state_does_not_grow(both):
    tally = both[2]
    assert tally.classwise.shape == (6, 20)
    assert tally.grid.shape == (3, 4096)
    assert tally.nodes == 5000


def test_only_equal_classes_and_bins_add():
    log_probs, y = predictions(100)
    with pytest.raises(ValueError, match=r"\(5, 20\) and \(5, 10\)"):
        Tally.of(log_probs, y) + Tally.of(log_probs, y, bins=10)


def test_chunks_inside_one_call_are_the_same_as_one_chunk(monkeypatch):
    log_probs, y = predictions(1000, scale=0.7)
    whole = metrics.reliability(log_probs, y)
    monkeypatch.setattr("graphcal.metrics.inputs.CHUNK", 64)
    torch.testing.assert_close(metrics.reliability(log_probs, y).gap, whole.gap)
