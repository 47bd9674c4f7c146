"""The settings of a training, those that were published, and what one run has of its own."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

import pytest

from graphcal.lab.models import BACKBONES, GCN
from graphcal.lab.training import AULS, TRAININGS, CrossEntropy, Replica, Training, default_training, published
from graphcal.lab.training.settings import _tables


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


def test_what_is_published_of_cagcns_gcn_are_the_defaults():
    assert published("cagcn", "gcn").training == Training()


@pytest.mark.parametrize("name", list(BACKBONES))
def test_every_backbone_has_a_published_training_by_default(name):
    made = published("cagcn", name)
    assert made.sources
    assert default_training(made.backbone) == made.training


@pytest.mark.parametrize("name", list(TRAININGS))
def test_every_table_is_understood_and_names_its_source(name):
    for backbone, table in _tables(name).items():
        assert table["source"]
        datasets = [key for key, value in table.items() if isinstance(value, dict) and key not in ("backbone", "scar")]
        for dataset in datasets:
            graph, _, labels = dataset.partition("-")
            made = published(name, backbone, graph, int(labels) if labels else None)
            assert made.sources[0] == table["source"]
            assert type(made.backbone) is BACKBONES[backbone]


def test_gats_base_models():
    """GATS's code has one schedule for both backbones, and no decay but on the graphs of Planetoid."""
    gcn, gat = (published("gats", name, "cora").training for name in ("gcn", "gat"))
    for t in (gcn, gat):
        assert (t.lr, t.dropout, t.epochs, t.patience, t.monitor, t.init) == (0.01, 0.5, 2000, 100, "both", "glorot")
    assert (gcn.hidden_channels, gcn.input_dropout) == (64, 0.0)
    assert (gat.hidden_channels, gat.input_dropout) == (8, 0.5)
    for backbone in ("gcn", "gat"):
        for graph, decay in (("citeseer", 5e-4), ("pubmed", 5e-4), ("photo", 0.0), ("physics", 0.0), ("corafull", 0.0)):
            assert published("gats", backbone, graph).training.weight_decay == decay


def test_official_backbone_settings():
    assert published("official", "gcnii", "cora").backbone.layers == 64
    chameleon = published("official", "gcnii", "chameleon")
    assert (chameleon.backbone.layers, chameleon.backbone.theta, chameleon.backbone.alpha) == (8, 1.5, 0.2)
    assert published("official", "gat", "pubmed").backbone.output_heads == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pyg", "gcn"), "unknown training 'pyg'; choose among cagcn, official, gats"),
        (("cagcn", "gnc"), "unknown backbone 'gnc'; choose among gcn"),
        (("gats", "sgc"), "training 'gats' does not say how to train 'sgc'; it knows gcn, gat"),
    ],
)
def test_unknown_names_list_the_choices(arguments, message):
    with pytest.raises(ValueError, match=message):
        published(*arguments)


def test_gcniis_convolutions_keep_their_own_decay():
    decays = {graph: published("official", "gcnii", graph).backbone.conv_weight_decay for graph in ("cora", "pubmed")}
    assert decays == {"cora": 0.01, "pubmed": 5e-4}


def test_a_backbone_that_nobody_published_trains_by_the_defaults():
    class Mine(GCN):
        pass

    assert default_training(Mine()) == Training()


def test_what_a_replica_does_not_say_is_the_trainings():
    training = Training(weight_decay=0.1)
    assert Replica(0).weight_decays(training) == (0.1, 0.1)
    assert Replica(0, weight_decay=0.3).weight_decays(training) == (0.3, 0.3)
    assert Replica(0, final_weight_decay=0.0).weight_decays(training) == (0.1, 0.0)
    both = Training(weight_decay=0.1, final_weight_decay=0.2)
    assert Replica(0).weight_decays(both) == (0.1, 0.2)
    assert Replica(0, weight_decay=0.3).weight_decays(both) == (0.3, 0.2)
    assert Replica(0, final_weight_decay=0.4).weight_decays(both) == (0.1, 0.4)


def test_its_masks_are_the_graphs_unless_it_has_its_own(graph):
    assert Replica(0).masks(graph) == (graph.train_mask, graph.val_mask)
    swapped = Replica(0, train_mask=graph.val_mask, val_mask=graph.train_mask)
    assert swapped.masks(graph) == (graph.val_mask, graph.train_mask)
    with pytest.raises(ValueError, match="train_mask and val_mask share 60 nodes"):
        Replica(0, train_mask=graph.val_mask).masks(graph)
