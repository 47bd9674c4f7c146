"""The settings of a training."""

import json
from dataclasses import asdict, fields

import pytest

from graphcal.training import AULS, CrossEntropy, Training


def test_the_defaults_are_cagcns_gcn():
    t = Training()
    assert (t.hidden_channels, t.dropout, t.input_dropout, t.init) == (64, 0.5, 0.0, "uniform")
    assert (t.lr, t.final_lr, t.weight_decay, t.final_weight_decay) == (0.01, None, 5e-4, None)
    assert (t.epochs, t.patience, t.monitor, t.loss) == (2000, 100, "loss", CrossEntropy())


def test_there_are_at_most_a_dozen():
    assert len(fields(Training)) <= 12


@pytest.mark.parametrize("training", [Training(), Training(epochs=7, loss=AULS(epsilon=-0.3)), Training(patience=None)])
def test_they_are_plain_data_and_come_back_from_it(training):
    assert Training.from_dict(json.loads(json.dumps(asdict(training)))) == training


def test_plain_data_changes_some_of_them():
    base = Training(epochs=7)
    assert base.updated({"lr": 0.1, "loss": "au-ls"}) == Training(epochs=7, lr=0.1, loss=AULS())
    assert base.updated({}) == base


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"monitor": "ece"}, "monitor='ece' is not one of"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\); got 1.0"),
        ({"epochs": 0}, "epochs must be at least 1; got 0"),
        ({"patience": 0}, "patience must be at least 1; got 0"),
        ({"final_weight_decay": -1e-4}, "final_weight_decay must not be negative"),
        ({"loss": "au-ls"}, r"loss='au-ls' is not a loss: give CrossEntropy\(\), AULS\(...\), or Training.from_dict"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Training(**wrong)


def test_an_unknown_setting_lists_the_choices():
    with pytest.raises(ValueError, match="a training has no setting hidden; it has hidden_channels, dropout"):
        Training.from_dict({"hidden": 8})
