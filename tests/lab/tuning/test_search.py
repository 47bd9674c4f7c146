"""The search for the final layer's decay: right on known curves, on validation nodes only, all replicas at once."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from conftest import random_graph
from graphcal import metrics
from graphcal.lab.training import Training, train
from graphcal.lab.tuning import NARROW, DecayCandidate, _bisect, sweep_decay, tune_decay
from graphcal.metrics import score

PLAIN = replace(score(torch.tensor([[0.8, 0.2]]).log(), torch.tensor([0])), accuracy=0.8)
QUICK = Training(hidden_channels=8, epochs=40, patience=None, dropout=0.0, weight_decay=5e-3)


class KnownCurve:
    """Stands in for the trainer: the gap at each decay is a given function, and what is asked for is recorded."""

    nodes = 500

    def __init__(self, gap) -> None:
        self.gap, self.candidates, self.rounds = gap, {}, 0

    @property
    def curve(self) -> list[DecayCandidate]:
        return [self.candidates[decay] for decay in sorted(self.candidates, reverse=True)]

    def add(self, decays) -> None:
        assert any(decay not in self.candidates for decay in decays), "a round that asks nothing new never ends"
        self.rounds += 1
        for decay in decays:
            self.candidates[decay] = DecayCandidate(decay, (replace(PLAIN, confidence=0.8 - self.gap(decay)),))


@pytest.mark.parametrize("root", [7e-6, 5e-5, 3.1e-4])
def test_bisection_finds_the_root_of_the_gap(root: float) -> None:
    curve = KnownCurve(lambda decay: 2.0 * math.log10(decay / root))  # steep: only a decay close to the root will do
    solution, _ = _bisect(curve, 5e-6, 5e-4)
    error = math.sqrt(0.8 * 0.2 / curve.nodes)
    assert abs(2.0 * math.log10(solution / root)) <= max(error, 2.0 * NARROW)
    assert curve.rounds <= 5


def test_bisection_survives_a_gap_that_is_not_monotone() -> None:
    curve = KnownCurve(lambda decay: 0.3 * math.sin(9 * math.log10(decay) + 1) + 0.05)
    solution, _ = _bisect(curve, 5e-6, 5e-4)
    assert abs(curve.gap(solution)) == pytest.approx(min(abs(point.scores.signed_gap) for point in curve.curve))


def test_bisection_says_when_the_lever_points_the_wrong_way_or_is_too_short() -> None:
    solution, note = _bisect(KnownCurve(lambda decay: -0.2 + decay), 5e-6, 5e-4)
    assert solution == 5e-4
    assert "over-confident at every decay" in note
    solution, note = _bisect(KnownCurve(lambda decay: 0.2 + decay), 5e-6, 5e-4)
    assert solution == 5e-6
    assert "too short" in note


def test_a_gap_within_its_standard_error_ends_the_search_in_one_round() -> None:
    curve = KnownCurve(lambda decay: 0.01)
    _, note = _bisect(curve, 5e-6, 5e-4)
    assert curve.rounds == 1
    assert "within its standard error of 0.018" in note


def test_a_head_without_decay_has_no_lever_left() -> None:
    data = random_graph()
    tuned = tune_decay(data, training=replace(QUICK, final_weight_decay=0.0), seeds=[0])
    assert tuned.spent
    assert tuned.decay == 0
    assert len(tuned.curve) == 1
    assert "lever is spent" in tuned.note


def test_grid_takes_the_lowest_validation_nll_and_returns_runs_equal_to_training_alone() -> None:
    data = random_graph()
    tuned = tune_decay(data, training=QUICK, decays=[1e-1, 1e-3], seeds=[0, 1], search="grid")
    assert [point.decay for point in tuned.curve] == [1e-1, 5e-3, 1e-3]
    assert tuned.decay == min(tuned.curve, key=lambda point: point.scores.nll).decay
    assert [run.seed for run in tuned.runs] == [0, 1]
    assert tuned.runs[0].outputs.graph is data
    alone = train(data, training=replace(QUICK, final_weight_decay=tuned.decay), seeds=[1])[0]
    assert torch.allclose(alone.outputs.logits, tuned.runs[1].outputs.logits, atol=1e-4)
    val = data.val_mask
    nll = [metrics.nll(run.outputs.logits[val].log_softmax(-1), data.y[val]) for run in tuned.runs]
    best = next(point for point in tuned.curve if point.decay == tuned.decay)
    assert best.scores.nll == pytest.approx(sum(nll) / 2)
    assert json.loads(json.dumps(tuned.to_dict()))["curve"][0]["signed_gap"] == pytest.approx(
        tuned.curve[0].scores.signed_gap
    )


def blind_copy(data: Data) -> Data:
    other = data.clone()
    other.y = torch.where(data.test_mask, (data.y + 1) % 4, data.y)
    return other


@pytest.mark.parametrize("kind", ["grid", "bisection"])
def test_no_test_label_is_read(kind: str) -> None:
    data = random_graph()
    a, b = (
        tune_decay(d, training=QUICK, seeds=[0], search=kind, decays=[5e-3, 5e-4]) for d in (data, blind_copy(data))
    )
    assert a.curve == b.curve
    assert a.decay == b.decay


def test_refusals_name_the_choices() -> None:
    data = random_graph()
    with pytest.raises(ValueError, match="search='random' is not one of bisection, grid"):
        tune_decay(data, search="random")
    with pytest.raises(ValueError, match="criterion='brier' is not one of nll, ece"):
        tune_decay(data, criterion="brier")
    with pytest.raises(ValueError, match="two positive ends"):
        tune_decay(data, decays=[0.0, 1e-3], training=QUICK)
    with pytest.raises(ValueError, match="which='first' is not one of final, global, others, both"):
        sweep_decay(data, which="first")
