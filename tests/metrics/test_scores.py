"""One set of scores, computed in one place; one path to an ECE."""

import json
import math

import pytest
import torch
from known_truth import binary, predictions

from graphcal import metrics
from graphcal.metrics import METRICS, evaluate, inputs, mean_scores, reliability, score
from graphcal.metrics.bins import outcomes
from graphcal.metrics.diagram import diagram_of
from graphcal.metrics.scores import SCORES, ece_of, worst_gap


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("bins", [1, 15, 20])
def test_an_ece_has_one_value_to_the_last_bit(dtype, bins):
    log_probs, y = predictions(3001, scale=0.7)
    log_probs = log_probs.to(dtype)
    expected = ece_of(reliability(log_probs, y, bins))
    assert metrics.ece(log_probs, y, bins) == expected
    assert score(log_probs, y, bins).ece == expected
    assert diagram_of([outcomes(log_probs, y)], bins, "equal-width").ece == expected
    evaluation = evaluate(log_probs, y, bins=bins, draws=20, thorough=False)
    assert (evaluation.ece, evaluation.diagrams[0].ece) == (expected, expected)
    record = json.loads(json.dumps(evaluation.to_dict()))
    assert record["ece"]["mean"] == record["ece"]["values"][0] == expected
    assert record["binnings"][record["bins"]]["ece"] == expected


def test_also_in_many_chunks(monkeypatch):
    log_probs, y = predictions(1000, scale=0.7)
    monkeypatch.setattr(inputs, "CHUNK", 64)
    expected = metrics.ece(log_probs.float(), y)
    assert ece_of(reliability(log_probs.float(), y)) == expected


def test_confidence_is_the_same_in_the_pass_over_rows_and_in_tensors():
    log_probs, y = predictions(2000, C=40, scale=3.0)
    for rows in (log_probs, log_probs.float()):
        assert inputs.read_chunk(rows, y).conf.tolist() == metrics.bins.confidence(rows)[0].tolist()


def test_scores_are_the_functions_one_by_one():
    log_probs, y = predictions(800, scale=0.6)
    scores = score(log_probs, y)
    for key in SCORES:
        if key in ("confidence", "confidence_right", "confidence_wrong", "ece_excess", "worst_slice"):
            continue
        f = metrics.coverage_at if key == "coverage_at_5" else getattr(metrics, key)
        value = f(log_probs) if key == "ece_floor" else f(log_probs, y)
        assert getattr(scores, key) == pytest.approx(value, abs=1e-12), key
    assert scores.ece_excess == scores.ece - scores.ece_floor
    conf, right = outcomes(log_probs, y)
    pred = log_probs.argmax(1)
    assert scores.worst_slice == worst_gap(conf, right, [pred])
    halves = [(torch.arange(800) < 400).long()]
    assert score(log_probs, y, cuts=halves).worst_slice == worst_gap(conf, right, [pred, *halves])
    assert set(SCORES) <= set(METRICS)


def test_confidence_is_parted_by_right_and_wrong():
    log_probs, y = binary(torch.tensor([0.9, 0.6, 0.8, 0.7]), torch.tensor([1.0, 0.0, 1.0, 0.0]))
    scores = score(log_probs, y)
    assert scores.confidence_right == pytest.approx((0.9 + 0.8) / 2)
    assert scores.confidence_wrong == pytest.approx((0.6 + 0.7) / 2)
    assert scores.signed_gap == pytest.approx(0.5 - 0.75)
    assert scores.overconfidence + scores.underconfidence == pytest.approx(scores.ece)
    assert scores.auroc == 1


def test_what_does_not_exist_is_null():
    scores = score(*binary(torch.full((5,), 0.9), torch.ones(5)))
    assert math.isnan(scores.auroc)
    assert math.isnan(scores.confidence_wrong)
    assert scores.to_dict()["auroc"] is None
    json.dumps(scores.to_dict(), allow_nan=False)


def test_the_mean_over_seeds_is_taken_score_by_score():
    y = predictions(300)[1]
    several = [score(predictions(300, scale=s)[0], y) for s in (0.5, 1.5)]
    mean = mean_scores(several)
    assert mean.nodes == 300
    assert mean.ece_excess == pytest.approx(sum(s.ece_excess for s in several) / 2)
    assert mean.nll == pytest.approx((several[0].nll + several[1].nll) / 2)
