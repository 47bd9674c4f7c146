"""The gate: right judgements at the promised certainty, and the honest third answer."""

import pytest
import torch
from known_truth import binary, confidences, draw, predictions
from scipy.stats import binom

from graphcal.metrics import ece, ece_floor, judge
from graphcal.metrics.gate import p_of_the_mean


def judgements(offset, limit, N, simulations):
    g = torch.Generator().manual_seed(8)
    for _ in range(simulations):
        conf = confidences("even", N, g) * 0.9 + 0.05
        yield judge(*binary(conf, draw(conf - offset, g)), limit=limit, draws=200, generator=g)


@pytest.mark.slow
def test_a_model_at_the_limit_rarely_passes_and_rarely_fails():
    outcomes = [d.outcome for d in judgements(0.05, 0.05, 1000, 200)]
    assert outcomes.count("pass") / 200 <= 0.09  # 5 % promised for each
    assert outcomes.count("fail") / 200 <= 0.09


@pytest.mark.parametrize(("offset", "N", "outcome"), [(0.0, 6000, "pass"), (0.15, 1000, "fail"), (0.0, 100, "unknown")])
def test_clear_cases(offset, N, outcome):
    decision = next(iter(judgements(offset, 0.05, N, 1)))
    assert decision.outcome == outcome
    assert (decision.nodes_needed is not None) == (outcome == "unknown")
    assert {"pass": "calibrated enough", "fail": "not calibrated", "unknown": "too few nodes"}[
        outcome
    ] in decision.sentence()


def test_the_number_of_nodes_it_names_decides():
    decision = next(iter(judgements(0.0, 0.05, 150, 1)))
    assert decision.nodes_needed > 150
    again = [d.outcome for d in judgements(0.0, 0.05, 2 * decision.nodes_needed, 20)]
    assert again.count("pass") >= 12


@pytest.mark.parametrize(("limit", "certainty"), [(0.0, 0.95), (1.5, 0.95), (0.05, 1.0), (0.05, 0.2)])
def test_senseless_limits_are_refused(limit, certainty):
    with pytest.raises(ValueError, match="limit must lie in"):
        judge(*binary(torch.full((10,), 0.8), torch.ones(10)), limit=limit, certainty=certainty)


def test_it_stands_on_the_same_ece_and_floor_as_every_table():
    data = predictions(500)
    decision = judge(*data, draws=100)
    assert (decision.ece, decision.ece_floor) == (pytest.approx(ece(*data)), ece_floor(data[0]))
    assert (decision.quantity, decision.binning) == ("confidence of the predicted class", "20 equal-width")
    assert decision.mean_probability is decision.share is decision.mean_p is None


def positive(p, y):
    """Two-class log-probabilities with these probabilities of class 1."""
    return torch.stack([1 - p, p], 1).log(), y


@pytest.mark.parametrize(("says", "share"), [(0.001, 0.023), (0.2, 0.023), (0.999, 0.977)])
def test_a_rare_class_with_a_wrong_mean_fails_though_the_confidence_is_right(says, share):
    """In points the error is far below the limit, and the confidence is that of the predicted class."""
    decision = judge(*positive(torch.full((2000,), says).double(), (torch.arange(2000) < 2000 * share).long()))
    assert decision.outcome == "fail"
    assert (decision.mean_probability, decision.share) == pytest.approx((says, share))
    assert decision.quantity == "probability of class 1"
    mean = f"the mean probability of class 1 is {100 * says:.3g} %, but {100 * share:.3g} % of the 2,000 nodes are of class 1"
    assert mean in decision.sentence()
    assert decision.nodes_needed is None


def test_probabilities_that_are_wrong_in_both_directions_fail_though_their_mean_and_the_confidence_are_right():
    """Half of the nodes say 10 %, half 40 %; it is the other way round. Every prediction is class 0, right in 75 %."""
    says = torch.tensor([0.1, 0.4]).double().repeat(1000)
    y = torch.where(says < 0.2, (torch.arange(2000) // 2 % 10 < 4).long(), (torch.arange(2000) // 2 % 10 < 1).long())
    decision = judge(*positive(says, y))
    assert decision.outcome == "fail"
    assert decision.ece == pytest.approx(0.3)
    assert decision.mean_p == 1.0


@pytest.mark.slow_cases("49.0-300", "4.0-500", "49.0-3000")
@pytest.mark.parametrize(("power", "N"), [(49.0, 300), (49.0, 3000), (4.0, 500), (1.0, 200)])
def test_calibrated_probabilities_of_a_class_rarely_fail(power, N):
    g, failed = torch.Generator().manual_seed(1), 0
    for _ in range(100):
        p = torch.rand(N, generator=g, dtype=torch.float64) ** power
        y = draw(p, g).long()
        failed += judge(*positive(p.clamp(1e-9, 1 - 1e-9), y), draws=200, generator=g).outcome == "fail"
    assert failed <= 5


def test_the_mean_may_be_off_by_the_limit_or_half_of_itself():
    assert p_of_the_mean(0.4, 450, 1000, 0.05) > 0.9
    assert p_of_the_mean(0.4, 500, 1000, 0.05) == pytest.approx(2 * float(binom.sf(499, 1000, 0.45)))
    assert p_of_the_mean(0.4, 300, 1000, 0.05) == pytest.approx(2 * float(binom.cdf(300, 1000, 0.35)))
    assert p_of_the_mean(0.0, 1, 1000, 0.0) == 0.0
    half = [judge(*positive(torch.full((4000,), 0.02).double(), (torch.arange(4000) < k).long())) for k in (118, 180)]
    assert [decision.outcome for decision in half] == ["pass", "fail"]
