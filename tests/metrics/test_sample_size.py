"""How many test nodes show a difference, and what validation labels allow."""

import pytest
import torch
from known_truth import predictions
from test_comparison import pairs

from graphcal.metrics import label_limit, nodes_needed, reliability
from graphcal.metrics.floor import limit_in_bins


@pytest.mark.slow
def test_nodes_needed_gives_the_promised_power():
    """At the number of nodes it names, the difference is found nine times in ten."""
    c = pairs(0.8, 1.0, 1, N=2000)[0][1]
    drawn = pairs(0.8, 1.0, 60, N=2000)
    expected, sd = sum(d for d, _ in drawn) / 60, sum(c.sd for _, c in drawn) / 60
    needed = nodes_needed(expected, sd, 2000)
    assert needed < 2000
    again = pairs(0.8, 1.0, 100, N=needed)
    assert 0.75 <= sum(c.p <= 0.05 for _, c in again) / 100 <= 1.0
    assert nodes_needed(c.difference / 2, c.sd, 2000) == pytest.approx(
        4 * nodes_needed(c.difference, c.sd, 2000), rel=0.01
    )
    with pytest.raises(ValueError, match="difference must not be 0"):
        nodes_needed(0.0, 0.01, 1000)


def test_five_hundred_labels_leave_about_two_points():
    log_probs, _ = predictions(1000, C=3)
    limit = label_limit(log_probs, 500)
    assert limit.undetermined == pytest.approx(0.018, abs=0.003)
    assert limit.ece_floor < limit.measured < limit.ece_floor + limit.true_error
    assert limit.labels_for(limit.true_error / 2) == pytest.approx(2000, abs=1)


@pytest.mark.slow
def test_the_label_limit_is_what_the_right_calibrator_shows():
    """Temperatures fitted on n labels, measured on the population: not better than the limit."""
    from graphcal.metrics.bins import bin_of, equal_width_edges
    from graphcal.metrics.refinement import best_scale

    errors = []
    for seed in range(60):
        log_probs, y = predictions(200, seed=seed)
        s = best_scale(log_probs, y)
        truth, _ = predictions(20_000, seed=1000 + seed)
        c, pred = (s * truth).log_softmax(1).exp().max(1)
        gap = truth.exp().gather(1, pred[:, None])[:, 0] - c
        errors.append(float((torch.bincount(bin_of(c, equal_width_edges(20)), gap, minlength=20) / len(c)).abs().sum()))
    limit = label_limit(predictions(1000)[0], 200).true_error
    assert 0.6 * limit < sum(errors) / 60 < 2.0 * limit


def test_the_limit_can_be_read_off_a_reliability_diagram():
    log_probs, y = predictions(5000)
    bins = reliability(log_probs, y, 20).to_dict()
    limit = limit_in_bins(bins["count"], bins["confidence"], 500)
    assert limit == pytest.approx(label_limit(log_probs, 500).measured, rel=0.01)
    assert limit_in_bins(bins["count"], bins["confidence"], 2000) < limit  # more labels, a lower limit
