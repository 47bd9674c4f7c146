"""Cross-fitting: no node is judged by a model that has seen its label."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import nll_loss

import graphcal
from conftest import random_graph
from graphcal.lab.training.cross_fitting import cross_fit
from graphcal.methods import GraphScaling, TemperatureScaling

TRAINING = graphcal.lab.Training(epochs=30, hidden_channels=8, patience=None)


@pytest.fixture(scope="module")
def data():
    return random_graph(nodes=500, train=60, val=80)


def test_every_labelled_node_is_judged_once_by_a_replica_that_did_not_see_it(data):
    fitted = cross_fit(data, training=TRAINING, folds=4)
    parts = fitted.on.view(4, -1)
    assert torch.equal(parts.sum(0), (data.train_mask | data.val_mask).long())
    assert not (fitted.outputs.graph.train_mask & fitted.on).any()
    each = fitted.outputs.graph.train_mask.view(4, -1)
    assert not (each & ~data.train_mask).any()
    assert torch.equal(each | (parts & data.train_mask), data.train_mask.expand(4, -1))
    assert (
        fitted.outputs.graph.y[~(fitted.outputs.graph.train_mask | fitted.on)] == -1
    ).all()  # test labels are not there


@pytest.mark.parametrize("mask", ["train_mask", "val_mask"])
def test_a_nodes_own_label_does_not_change_what_is_said_of_it(data, mask):
    training = graphcal.lab.Training(epochs=30, hidden_channels=8, patience=5)  # the validation nodes choose the epoch
    node = int(data[mask].nonzero()[7])
    other = data.clone()
    other.y = data.y.clone()
    other.y[node] = (data.y[node] + 1) % 4
    first = cross_fit(data, training=training, folds=3)
    # the same folds: they are dealt by class, so the relabelled graph is trained with those of the first
    unseen = first.on.view(3, -1)
    k = int(unseen[:, node].nonzero())
    replica = graphcal.lab.training.Replica(
        0, train_mask=data.train_mask & ~unseen[k], val_mask=data.val_mask & ~unseen[k]
    )
    (again,) = graphcal.lab.training.train_replicas(other, "gcn", training, [replica])
    logits = first.outputs.logits.view(3, data.num_nodes, -1)[k, node]
    torch.testing.assert_close(again.outputs.logits[node], logits, atol=1e-4, rtol=1e-4)


def test_a_calibration_fitted_on_it_serves_the_whole_model(data):
    run = graphcal.lab.train(data, training=TRAINING, seeds=[0])[0]
    fitted = cross_fit(data, training=TRAINING, folds=4)
    test = data.test_mask
    before = nll_loss(run.outputs.logits.log_softmax(-1)[test], data.y[test])
    for recipe in (TemperatureScaling(), GraphScaling()):
        after = nll_loss(recipe.fit(fitted.outputs, on=fitted.on)(run.outputs)[test], data.y[test])
        assert after < before
    with pytest.raises(ValueError, match="SCAR needs the final layer"):
        graphcal.SCAR().fit(fitted.outputs, on=fitted.on)


def test_folds_must_be_filled(data):
    with pytest.raises(ValueError, match="folds must be from 2 to the number of labelled nodes, 140; got 1"):
        cross_fit(data, folds=1)
