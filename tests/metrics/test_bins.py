"""One binning: (lo, hi], nothing lost at 0 and 1, sums that add."""

import pytest
import torch
from known_truth import predictions

from graphcal.metrics import reliability
from graphcal.metrics.bins import bin_of, confidence, equal_mass_edges, equal_width_edges, tally


@pytest.mark.parametrize(("conf", "expected"), [(0.0, 0), (0.05, 0), (0.0500001, 1), (0.15, 2), (0.55, 10), (1.0, 19)])
def test_bins_are_open_below_and_closed_above(conf, expected):
    assert int(bin_of(torch.tensor([conf], dtype=torch.float64), equal_width_edges(20))) == expected


@pytest.mark.parametrize("bins", [1, 3, 7, 10, 15, 20, 30])
def test_every_edge_belongs_to_the_bin_below_it(bins):
    edges = equal_width_edges(bins)
    assert bin_of(edges[1:], edges).tolist() == list(range(bins))


def test_confidence_one_is_in_the_last_bin_and_counts():
    log_probs = torch.tensor([[0.95, 0.05], [1.0, 0.0]], dtype=torch.float64).log()
    rel = reliability(log_probs, torch.tensor([1, 0]), bins=10)  # the case another library gets wrong: 0.475, not 0.525
    assert rel.count.tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert float(rel.gap.abs().sum()) == pytest.approx(0.475)


def test_confidence_zero_is_in_the_first_bin():
    rel = tally(torch.tensor([0.0, 0.5]), torch.tensor([0.0, 1.0]), equal_width_edges(10))
    assert rel.count[0] == 1
    assert rel.nodes == 2


def test_equal_mass_bins_hold_equal_numbers():
    log_probs, y = predictions(503)
    rel = reliability(log_probs, y, bins=10, scheme="equal-mass")
    assert sorted(rel.count.tolist()) == [50] * 7 + [51] * 3
    assert "equal-mass" in rel.convention


def test_equal_mass_bins_keep_ties_together():
    conf = torch.tensor([0.6] * 50 + [0.9] * 50)
    rel = tally(conf, torch.ones(100), equal_mass_edges(conf, 4), "equal-mass")
    assert sorted(rel.count[rel.count > 0].tolist()) == [50, 50]


def test_reliabilities_of_parts_add_to_that_of_the_whole():
    log_probs, y = predictions(1000)
    whole, parts = (
        reliability(log_probs, y),
        reliability(log_probs[:300], y[:300]) + reliability(log_probs[300:], y[300:]),
    )
    assert torch.equal(whole.count, parts.count)
    for name in ("conf_sum", "right_sum", "variance", "square"):
        torch.testing.assert_close(getattr(whole, name), getattr(parts, name))


def test_only_equal_bins_add():
    log_probs, y = predictions(100)
    with pytest.raises(ValueError, match="same bins"):
        reliability(log_probs, y, 10) + reliability(log_probs, y, 20)


def test_a_table_says_how_it_was_binned():
    log_probs, y = predictions(100)
    assert reliability(log_probs, y, 15).to_dict()["convention"] == "15 equal-width bins (lo, hi], 0 and 1 included"
    with pytest.raises(ValueError, match=r"scheme must be one of equal-width, equal-mass, got 'quantile'"):
        reliability(log_probs, y, 15, "quantile")


def test_a_confidence_that_rounding_lifts_above_1_is_1():
    """float32 rows sum to one only nearly: exp may exceed 1, and c (1 - c) would then be below 0."""
    log_probs = torch.tensor([[2e-4, -9.0], [-9.0, 1e-4]])
    rel = reliability(log_probs, torch.tensor([0, 1]))
    assert float(rel.conf_sum[-1]) == 2.0
    assert float(rel.variance[-1]) == 0.0
    assert confidence(log_probs)[0].tolist() == [1.0, 1.0]
