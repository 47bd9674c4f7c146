"""Retraining: validation labels train, each fold is left out once, and no test label is read."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from torch.nn.functional import nll_loss

import graphcal
from conftest import random_graph
from graphcal.core import hide_test_labels
from graphcal.lab.bench.expansion import SlotSettings, make_cells
from graphcal.lab.training import Replica, Retraining, Training, retrain, train_replicas
from graphcal.lab.training.cross_fitting import stratified_folds
from graphcal.methods import TemperatureScaling

TRAINING = Training(epochs=40, hidden_channels=8, patience=None)


@pytest.fixture(scope="module")
def data():
    return random_graph(nodes=600, train=20, val=200)


def test_probabilities_are_the_mean_of_tempered_replicas_trained_without_their_fold(data):
    out = retrain(data, training=TRAINING, folds=2, seed=3)
    val = data.val_mask.nonzero().flatten()
    fold, total = stratified_folds(data.y, data.train_mask, val, 2, 3), 0.0
    for k in range(2):
        left = torch.zeros_like(data.val_mask)
        left[val[fold == k]] = True
        replica = Replica(3 + k, train_mask=data.train_mask | (data.val_mask & ~left), val_mask=left)
        (run,) = train_replicas(data, "gcn", TRAINING, [replica])
        total = total + TemperatureScaling().fit(run.outputs, on=left)(run.outputs).exp()
    torch.testing.assert_close(out.logits.exp(), total / 2, atol=1e-4, rtol=1e-3)


def test_validation_labels_train_better_than_they_calibrate(data):
    run = graphcal.lab.train(data, training=TRAINING, seeds=[0])[0]
    calibrated = TemperatureScaling().fit(run.outputs, on=data.val_mask)(run.outputs)
    again = retrain(data, training=TRAINING).logits
    test = data.test_mask
    assert nll_loss(again[test], data.y[test]) < nll_loss(calibrated[test], data.y[test])


def test_test_labels_are_not_read_and_the_row_of_the_bench_is_the_same(data):
    expected = retrain(data, training=TRAINING, folds=3, seed=1).logits
    out = graphcal.lab.train(data, training=TRAINING, seeds=[0])[0].outputs
    hidden = type(out)(out.logits, hide_test_labels(data))
    row = Retraining(training=asdict(TRAINING), folds=3, seed=1).fit(hidden, on=data.val_mask)
    assert torch.equal(row(out), expected)


def test_a_cell_retrains_the_backbone_of_its_row():
    settings = SlotSettings("retraining", "per-class", training={"epochs": 7})
    (cell,) = make_cells(settings, {"dataset": "cora", "backbone": "sage"}, 1)
    assert (cell.settings["backbone"], cell.settings["training"]["epochs"]) == ("sage", 7)


def test_more_folds_than_validation_nodes_are_refused(data):
    with pytest.raises(ValueError, match="folds must be from 2 to the number of validation nodes, 200; got 201"):
        retrain(data, folds=201)
