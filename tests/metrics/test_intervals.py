"""Intervals cover what they are intervals for: the binned calibration error of the population."""

import pytest
import torch
from known_truth import binary, confidences, draw, predictions

from graphcal.metrics import block_ece_interval, ece, ece_floor, ece_interval, evaluate, true_error
from graphcal.metrics.bins import bin_of, equal_width_edges
from graphcal.metrics.intervals import (
    block_noise,
    drawn_normal,
    gap_moments,
    gap_shape,
    gaps_by_node,
    many_block_noise,
    normal_noise,
    random_blocks,
    resampled_noise,
    residuals_of,
    smallest,
    smoothed_gaps,
)

# A calibrated model is covered with 97.5 % (its error, 0, can be missed on one side only). With 400 simulations chance alone
# would take one seed in four over the 98 % allowed; with 1,600 the sd of the share is 0.4 points and the seed does not matter.
SIMULATIONS = 1600

TRUTHS = {
    "calibrated": ("high", lambda c: c),
    "over-confident by 5 points": ("even", lambda c: c - 0.05),
    "under-confident": ("low", lambda c: c + 0.5 * c * (1 - c)),
    "wrong in both directions": ("even", lambda c: (c + 0.08 * torch.sin(12 * c)).clamp(0, 1)),
}


def population_error(shape, truth):
    g = torch.Generator().manual_seed(99)
    conf = confidences(shape, 1_000_000, g)
    gap = torch.bincount(bin_of(conf, equal_width_edges(20)), weights=truth(conf) - conf, minlength=20) / len(conf)
    return float(gap.abs().sum())


@pytest.mark.slow
@pytest.mark.parametrize("case", TRUTHS)
def test_95_percent_intervals_cover(case):
    shape, truth = TRUTHS[case]
    error, g = population_error(shape, truth), torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(SIMULATIONS):
        conf = confidences(shape, 1000, g)
        low, high = ece_interval(*binary(conf, draw(truth(conf), g)), draws=200, generator=g)
        covered += low <= error <= high
    assert 0.92 <= covered / SIMULATIONS <= 0.98


def test_large_samples_use_normal_noise_and_agree():
    g = torch.Generator().manual_seed(0)
    conf = confidences("even", 20_001, g)
    data = binary(conf, draw(conf - 0.03, g))
    normal = ece_interval(*data, draws=2000)
    small = ece_interval(data[0][:20_000], data[1][:20_000], draws=200)
    assert normal == pytest.approx(small, abs=0.003)


def test_an_interval_is_the_same_each_time_and_widens_with_its_level():
    log_probs, y = predictions(500, scale=0.7)
    assert ece_interval(log_probs, y) == ece_interval(log_probs, y)
    narrow, wide = ece_interval(log_probs, y, level=0.5), ece_interval(log_probs, y, level=0.99)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        ece_interval(log_probs, y, level=95)


def test_perfect_predictions_have_the_interval_zero():
    log_probs, y = binary(torch.ones(50, dtype=torch.float64), torch.ones(50))
    assert ece_interval(log_probs, y) == (0.0, 0.0)


def test_one_seed_has_the_interval_of_the_mean_over_one_seed():
    log_probs, y = predictions(800, scale=0.7)
    assert ece_interval([log_probs], y) == ece_interval(log_probs, y)


def test_seeds_of_a_large_sample_use_normal_noise_and_agree(monkeypatch):
    y = predictions(3000, scale=0.7)[1]
    seeds = [predictions(3000, scale=s)[0] for s in (0.6, 0.7, 0.8)]
    resampled = ece_interval(seeds, y, draws=2000)
    monkeypatch.setattr("graphcal.metrics.inputs.RESAMPLE_UP_TO", 100)
    assert ece_interval(seeds, y, draws=2000) == pytest.approx(resampled, abs=0.003)


def test_ten_seeds_on_the_same_nodes_are_not_ten_times_the_nodes():
    log_probs, y = predictions(800, scale=0.7)
    one, ten = ece_interval(log_probs, y), ece_interval([log_probs] * 10, y)
    assert ten[1] - ten[0] == pytest.approx(one[1] - one[0], rel=0.2)


def chain(groups, size):
    """Edges of `groups` cliques."""
    i, j = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    pairs = torch.stack([i[i != j], j[i != j]])
    return torch.cat([pairs + k * size for k in range(groups)], 1)


def test_blocks_are_neighbourhoods():
    edges = chain(30, 4)
    block = random_blocks(edges, 120, torch.Generator().manual_seed(0))
    assert (block // 4 == torch.arange(120) // 4).all()  # a clique follows one leader of its own
    assert len(block.unique()) == 30


def test_blocks_cover_where_neighbours_are_right_together():
    """Nodes of a clique share their outcome: resampling nodes is too sure, resampling blocks is not."""
    g, edges, hit = torch.Generator().manual_seed(3), chain(150, 4), {"nodes": 0, "blocks": 0}
    nodes, error = torch.arange(600), 0.08
    for _ in range(150):
        conf = (0.6 + 0.3 * torch.rand(150, generator=g, dtype=torch.float64)).repeat_interleave(4)
        right = (torch.rand(150, generator=g, dtype=torch.float64) < conf[::4] - error).double().repeat_interleave(4)
        data = binary(conf, right)
        for name, (low, high) in {
            "nodes": ece_interval(*data, draws=200, generator=g),
            "blocks": block_ece_interval(*data, edges, nodes, draws=200, generator=g),
        }.items():
            hit[name] += low <= error <= high
    assert hit["nodes"] / 150 < 0.75
    assert hit["blocks"] / 150 > 0.9


def test_blocks_agree_with_nodes_where_there_are_no_edges():
    log_probs, y = predictions(800, scale=0.7)
    none = torch.zeros(2, 0, dtype=torch.long)
    blocks = block_ece_interval(log_probs, y, none.new_tensor([[0], [0]]), torch.arange(800), draws=2000)
    assert blocks == pytest.approx(ece_interval(log_probs, y, draws=2000), abs=0.006)
    with pytest.raises(ValueError, match="nodes must name one node for each row"):
        block_ece_interval(log_probs, y, none, torch.arange(3))


def test_the_interval_holds_the_measured_error_when_it_is_large():
    log_probs, y = predictions(2000, scale=0.4)
    low, high = ece_interval(log_probs, y)
    assert low < ece(log_probs, y) < high


@pytest.mark.slow_cases("0.0", "0.113", "0.036")
@pytest.mark.parametrize("error", [0.113, 0.036, 0.023, 0.0])
def test_the_estimate_of_the_true_error_is_right_where_ece_minus_floor_is_not(error):
    """1,000 nodes in 20 bins, over-confident by `error`: medians over 120 draws."""
    g, estimates, naive = torch.Generator().manual_seed(1), [], []
    for _ in range(120):
        conf = 0.5 + 0.45 * torch.rand(1000, generator=g, dtype=torch.float64)
        log_probs, y = binary(conf, draw(conf - error, g))
        estimates.append(true_error(log_probs, y, draws=200, generator=g))
        naive.append(ece(log_probs, y) - ece_floor(log_probs))
    median = float(torch.tensor(estimates).median())
    assert median == pytest.approx(error, abs=0.006)
    if error > 0:
        assert float(torch.tensor(naive).median()) < error - 0.01


def test_the_estimate_lies_in_the_interval_and_is_that_of_the_measurement():
    log_probs, y = predictions(800, scale=0.7)
    low, high = ece_interval(log_probs, y)
    assert low < true_error(log_probs, y) < high
    m = evaluate(log_probs, y, thorough=False)
    assert (m.true_error, m.ece_interval) == (true_error(log_probs, y), (low, high))
    assert m.to_dict()["true_error"] == m.true_error


@pytest.mark.slow
@pytest.mark.parametrize("case", ["calibrated", "wrong in both directions"])
def test_intervals_of_many_nodes_cover(case, monkeypatch):
    """The normal noise that replaces resampling beyond 20,000 nodes, tried on 1,000."""
    monkeypatch.setattr("graphcal.metrics.inputs.RESAMPLE_UP_TO", 100)
    shape, truth = TRUTHS[case]
    error, g, covered = population_error(shape, truth), torch.Generator().manual_seed(0), 0
    for _ in range(400):
        conf = confidences(shape, 1000, g)
        low, high = ece_interval(*binary(conf, draw(truth(conf), g)), draws=200, generator=g)
        covered += low <= error <= high
    assert 0.92 <= covered / 400 <= 0.99


def test_normal_noise_has_the_covariance_of_resampled_nodes():
    """With large gaps, and two seeds that are wrong together: a wrong sign of d d^T would double the variance."""
    g = torch.Generator().manual_seed(0)
    conf = 0.6 + 0.39 * torch.rand(2000, generator=g, dtype=torch.float64)
    log_probs, y = binary(conf, draw(conf - 0.5, g))
    residual, cell = residuals_of([log_probs, log_probs.roll(0)], y, 4)
    by_node = gaps_by_node(residual, cell, 8)
    d, moment = gap_moments(residual, cell, 8)
    torch.testing.assert_close(d, by_node.mean(0))
    normal = normal_noise(d, moment, 2000, 20_000, g).T.cov()
    torch.testing.assert_close(normal, by_node.T.cov(correction=0) / 2000, atol=1e-6, rtol=0.05)
    assert float(normal[3, 7]) > 0  # the same nodes in both seeds


def test_the_shape_of_the_gaps_by_hand():
    """Of noise that explains 3/8 of the squares, the observed shape counts (5/8)², that of the noise the rest."""
    d, noise = torch.tensor([0.3, -0.1]).double(), torch.tensor([[0.1], [-0.1]]).double() * torch.tensor([1.0, 1.0])
    sd = noise.std(dim=0)  # 0.1414 each
    real = (1 - float((sd**2).sum()) / 0.1) ** 2
    assert real == pytest.approx(0.36)
    expected = [real * 0.75 + (1 - real) * 0.5, -real * 0.25 - (1 - real) * 0.5]
    assert gap_shape(d, noise).tolist() == pytest.approx(expected)


def test_blocks_of_many_nodes_have_the_covariance_of_resampled_blocks(monkeypatch):
    g, edges = torch.Generator().manual_seed(3), chain(500, 4)
    conf = (0.6 + 0.3 * torch.rand(500, generator=g, dtype=torch.float64)).repeat_interleave(4)
    right = (torch.rand(500, generator=g, dtype=torch.float64) < conf[::4] - 0.5).double().repeat_interleave(4)
    nodes = torch.arange(2000)
    residual, cell = residuals_of([binary(conf, right)[0]], binary(conf, right)[1], 5)
    drawn = block_noise(gaps_by_node(residual, cell, 5), edges, nodes, 4000, g)
    normal = many_block_noise(residual, cell, 5, edges, nodes, 4000, g)
    torch.testing.assert_close(normal.T.cov(), drawn.T.cov(), atol=8e-6, rtol=0.12)
    by_nodes = resampled_noise(gaps_by_node(residual, cell, 5), 1000, g)
    assert float(normal.sum(1).std()) > 1.7 * float(by_nodes.sum(1).std())  # four nodes are one
    few = block_ece_interval(*binary(conf, right), edges, nodes, bins=5, draws=2000)
    monkeypatch.setattr("graphcal.metrics.inputs.RESAMPLE_UP_TO", 100)
    assert block_ece_interval(*binary(conf, right), edges, nodes, bins=5, draws=2000) == pytest.approx(few, abs=0.005)


def test_the_smallest_error_is_exact_to_five_digits():
    for wanted in (0.0123456, 0.5, 0.98765):
        assert smallest(lambda theta, wanted=wanted: theta >= wanted) == pytest.approx(wanted, abs=1e-5)


def test_gaps_of_drawn_blocks_are_means_over_the_nodes_drawn():
    """Blocks have different sizes, so the number of drawn nodes varies: equal residuals have no noise."""
    edges = torch.tensor(
        [[0] * 5 + list(range(1, 6)), list(range(1, 6)) + [0] * 5]
    )  # a star of six, and four nodes alone
    by_node = torch.full((10, 1), -0.3, dtype=torch.float64)
    noise = block_noise(by_node, edges, torch.arange(10), 200, torch.Generator().manual_seed(0))
    assert float(noise.abs().max()) < 1e-12


def test_normal_noise_keeps_small_variances():
    """A rare bin has a thousandth of the variance of a full one, and is not without noise."""
    drawn = drawn_normal(torch.diag(torch.tensor([1.0, 1e-3, 0.0]).double()), 20_000, torch.Generator().manual_seed(0))
    assert drawn.std(dim=0).tolist() == pytest.approx([1.0, 1e-3**0.5, 0.0], rel=0.03)


def test_smoothed_gaps_keep_a_line_and_drop_noise():
    """Residuals on a line over the bins come back whole; a rest that is all noise goes, one beyond noise nearly stays."""
    count = torch.tensor([[100.0, 300.0, 100.0, 500.0]]).double()
    line = count / 1000 * (0.1 - 0.02 * torch.arange(4).double())
    g = torch.Generator().manual_seed(0)
    noise = 0.01 * torch.randn(4000, 1, 4, generator=g, dtype=torch.float64)
    torch.testing.assert_close(smoothed_gaps(line, noise, count), line)
    zigzag = torch.tensor([[1.0, -1.0, 1.0, 0.0]]).double()
    torch.testing.assert_close(smoothed_gaps(line + 1e-4 * zigzag, noise, count), line, atol=2e-4, rtol=0)
    far = smoothed_gaps(line + zigzag, noise, count)
    torch.testing.assert_close(far, line + zigzag, atol=1e-3, rtol=0)
