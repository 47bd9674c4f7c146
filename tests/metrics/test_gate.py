"""The gate: right judgements at the promised certainty, and the honest third answer."""

import pytest
import torch
from known_truth import binary, confidences, draw

from graphcal.metrics import ece, ece_floor, judge


def judgements(offset, limit, N, simulations):
    g = torch.Generator().manual_seed(8)
    for _ in range(simulations):
        conf = confidences("even", N, g) * 0.9 + 0.05
        yield judge(*binary(conf, draw(conf - offset, g)), limit=limit, draws=200, generator=g)


def test_a_model_at_the_limit_rarely_passes_and_rarely_fails():
    outcomes = [d.outcome for d in judgements(0.05, 0.05, 1000, 200)]
    assert outcomes.count("pass") / 200 <= 0.09  # 5 % promised for each
    assert outcomes.count("fail") / 200 <= 0.09


@pytest.mark.parametrize(("offset", "N", "outcome"), [(0.0, 6000, "pass"), (0.15, 1000, "fail"), (0.0, 100, "unknown")])
def test_clear_cases(offset, N, outcome):
    found = next(iter(judgements(offset, 0.05, N, 1)))
    assert found.outcome == outcome
    assert (found.nodes_needed is not None) == (outcome == "unknown")
    assert {"pass": "calibrated enough", "fail": "not calibrated", "unknown": "too few nodes"}[
        outcome
    ] in found.sentence()


def test_the_number_of_nodes_it_names_decides():
    found = next(iter(judgements(0.0, 0.05, 150, 1)))
    assert found.nodes_needed > 150
    again = [d.outcome for d in judgements(0.0, 0.05, 2 * found.nodes_needed, 20)]
    assert again.count("pass") >= 15


@pytest.mark.parametrize(("limit", "certainty"), [(0.0, 0.95), (1.5, 0.95), (0.05, 1.0), (0.05, 0.2)])
def test_senseless_limits_are_refused(limit, certainty):
    with pytest.raises(ValueError, match="limit must lie in"):
        judge(*binary(torch.full((10,), 0.8), torch.ones(10)), limit=limit, certainty=certainty)


def test_it_stands_on_the_same_ece_and_floor_as_every_table():
    data = binary(confidences("even", 500, torch.Generator().manual_seed(0)), torch.ones(500))
    found = judge(*data, draws=100)
    assert (found.ece, found.ece_floor) == (ece(*data), ece_floor(data[0]))
