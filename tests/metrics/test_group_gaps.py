"""The gap of the worst group without its noise, where the truth is known."""

import pytest
import torch
from known_truth import confidences, draw

from graphcal.metrics.scores import corrected_gaps, gaps_of, without_noise, worst_gap


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_gaps_and_variances_by_hand():
    nodes, gap, variance = gaps_of(numbers(0.8, 0.5, 0.9), numbers(1, 0, 1), torch.tensor([0, 0, 2]), 3)
    assert nodes.tolist() == [2, 0, 1]
    assert gap.tolist() == pytest.approx([(0.2 - 0.5) / 2, 0, 0.1])
    # first: claimed 0.16 + 0.25 is more than observed 0.04 + 0.25; last: claimed 0.09 is more than observed 0.01
    assert variance.tolist() == pytest.approx([0.41 / 4, 0, 0.09])
    assert gaps_of(numbers(0.9, 0.8), numbers(0, 0), torch.tensor([0, 0]), 1)[2] == pytest.approx((0.81 + 0.64) / 4)


def test_seeds_on_the_same_nodes_leave_the_variance_as_it_is():
    g = torch.Generator().manual_seed(0)
    conf = confidences("even", 200, g)
    right, group = draw(conf, g), torch.arange(200) % 3
    one, three = gaps_of(conf, right, group, 3), gaps_of(conf.repeat(3), right.repeat(3), group.repeat(3), 3, seeds=3)
    for a, b in zip(one, three):
        torch.testing.assert_close(a, b)


def test_what_is_left_of_a_gap_is_the_one_it_is_the_median_of():
    """Simulated: a group with gap θ among nine without; pick the largest. Half of the picks are at most what we were given."""
    g, theta = torch.Generator().manual_seed(0), float(without_noise(numbers(2.5), numbers(1), 10))
    drawn = torch.randn(100_000, 10, generator=g, dtype=torch.float64)
    drawn[:, 0] += theta
    assert float((drawn.abs().amax(1) <= 2.5).double().mean()) == pytest.approx(0.5, abs=0.01)
    assert 2.2 < theta < 2.5


def test_few_sd_are_noise_and_many_are_not():
    left = without_noise(numbers(4, -4, 1.5, 0), numbers(1, 1, 1, 1), 20)
    assert left.tolist() == pytest.approx([4, -4, 0, 0], abs=0.01)
    assert float(without_noise(numbers(0.4), numbers(0.25), 1)) == pytest.approx(
        0.297, abs=0.001
    )  # P(|ε + 0.594| <= 0.8) = 1/2


def test_groups_are_held_against_all_nodes():
    """All groups as far off as all nodes: no group is worse than that."""
    left = corrected_gaps(numbers(0.1, 0.13, 0.08, 0.4), numbers(1e-6, 1e-3, 1e-3, 1e-3), 3)
    assert left.tolist() == pytest.approx([0.1, 0.1, 0.1, 0.4], abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("off", "everywhere", "within"), [(0.0, 0.0, 0.04), (0.15, 0.0, 0.02), (0.0, 0.12, 0.02), (-0.2, 0.05, 0.02)]
)
def test_the_estimate_is_near_the_truth_where_the_largest_gap_is_not(off, everywhere, within):
    """Ten groups of 100 nodes, one of them or all off: means over 300 draws."""
    g, group, plain, ours = torch.Generator().manual_seed(0), torch.arange(1000) % 10, 0.0, 0.0
    for _ in range(300):
        conf = 0.6 + 0.3 * torch.rand(1000, generator=g, dtype=torch.float64)
        right = draw(conf - everywhere - off * (group == 3), g)
        plain += float(gaps_of(conf, right, group, 10)[1].abs().max()) / 300
        ours += worst_gap(conf, right, [group]) / 300
    truth = max(abs(everywhere), abs(everywhere + off))
    assert ours == pytest.approx(truth, abs=within)
    if truth < 0.14:
        assert plain > truth + 0.05


def test_small_groups_do_not_count():
    conf = torch.full((100,), 0.9, dtype=torch.float64)
    right = draw(torch.full((100,), 0.88), torch.Generator().manual_seed(0))
    right[:10] = 0.0  # ten nodes, all wrong
    group = (torch.arange(100) >= 10).long()
    assert worst_gap(conf, right, [group]) < 0.15
    assert worst_gap(conf, right, [group, (torch.arange(100) >= 30).long()]) > 0.2  # thirty, of which ten are those
    assert worst_gap(conf[:20], right[:20], [group[:20]]) > 0.3  # where all are small, all nodes count
