"""Candidates are judged on validation nodes; with a calibrator on top, by fits on the other folds."""

from __future__ import annotations

from conftest import random_graph
from graphcal.lab.training import Training
from graphcal.lab.tuning import tune_decay
from graphcal.methods import TemperatureScaling

QUICK = Training(hidden_channels=8, epochs=40, patience=None, dropout=0.0, weight_decay=5e-3)


def test_after_judges_the_calibrated_model() -> None:
    data = random_graph()
    tuned = tune_decay(data, training=QUICK, decays=[1e-3], seeds=[0], search="grid", after=TemperatureScaling())
    bare = tune_decay(data, training=QUICK, decays=[1e-3], seeds=[0], search="grid")
    assert [p.scores.nll for p in tuned.curve] != [p.scores.nll for p in bare.curve]


def test_a_candidate_is_the_mean_over_its_seeds() -> None:
    tuned = tune_decay(random_graph(), training=QUICK, decays=[1e-3], seeds=[0, 1], search="grid")
    point = tuned.curve[0]
    assert len(point.by_seed) == 2
    assert point.scores.nll == sum(s.nll for s in point.by_seed) / 2
    assert point.nll_sd > 0
    assert point.to_dict()["ece"] == point.scores.ece
