"""Settings and named recipes."""

import pytest

from graphcal.models import BACKBONES
from graphcal.training import RECIPES, Training, preset, recipe
from graphcal.training.published import _tables


def test_the_defaults_are_cagcns_gcn():
    assert recipe("cagcn", "gcn") == Training()
    t = Training()
    assert (t.hidden, t.dropout, t.input_dropout, t.lr, t.weight_decay) == (64, 0.5, 0.0, 0.01, 5e-4)
    assert (t.epochs, t.patience, t.init, t.optimizer, t.final_weight_decay) == (2000, 100, "uniform", "adam", None)


@pytest.mark.parametrize("name", list(BACKBONES))
def test_every_backbone_has_a_default_recipe(name):
    assert isinstance(recipe("cagcn", name), Training)


@pytest.mark.parametrize("name", RECIPES)
def test_every_table_of_every_recipe_is_understood_and_names_its_source(name):
    for backbone, table in _tables(name).items():
        assert table["source"]
        datasets = [key for key, value in table.items() if isinstance(value, dict) and key not in ("backbone", "scar")]
        for dataset in datasets:
            graph, _, labels = dataset.partition("-")
            made = preset(name, backbone, graph, int(labels) if labels else None)
            assert made.sources[0] == table["source"]
            assert type(made.backbone) is BACKBONES[backbone]


# The SCAR paper's table of GCN settings: lr, hidden, dropout, lambda_K, alpha, beta; the head's rate from its code.
PUBLISHED_GCN = {
    ("cora", 20): (0.015, 64, 0.6, 1e-4, 2e-4, 2e-3, 0.01),
    ("cora", 40): (0.015, 64, 0.6, 1e-4, 1e-4, 1e-3, 0.01),
    ("cora", 60): (0.015, 64, 0.6, 1e-4, 1e-4, 1e-3, 0.01),
    ("citeseer", 20): (0.01, 64, 0.5, 4.5e-4, 5e-5, 5e-3, None),
    ("citeseer", 40): (0.01, 64, 0.5, 4.5e-4, 5e-5, 5e-3, None),
    ("citeseer", 60): (0.01, 64, 0.5, 4e-4, 5e-4, 2e-3, 0.015),
    ("pubmed", 20): (0.02, 16, 0.5, 4e-4, 5e-8, 5e-6, 0.03),
    ("pubmed", 60): (0.02, 16, 0.5, 4e-4, 5e-7, 5e-5, 0.03),
    ("corafull", 20): (0.01, 64, 0.5, 2e-6, 3e-5, 5e-4, None),
    ("corafull", 40): (0.01, 64, 0.5, 1e-4, 3e-4, 5e-3, None),
}


@pytest.mark.parametrize(("cell", "published"), PUBLISHED_GCN.items(), ids=str)
def test_scars_gcn_settings(cell, published):
    made = preset("scar-code", "gcn", *cell)
    t = made.training
    assert (t.lr, t.hidden, t.dropout, t.final_weight_decay) == published[:4]
    assert (made.scar["alpha"], made.scar["beta"], t.head_lr) == published[4:]
    assert (t.input_dropout, t.init, t.patience, t.weight_decay) == (t.dropout, "negative-normal", None, 5e-4)


def test_scars_gat_settings():
    cora, pubmed = preset("scar-code", "gat", "cora", 20), preset("scar-code", "gat", "pubmed", 40)
    assert (cora.training.lr, cora.training.hidden, cora.training.dropout) == (0.01, 8, 0.5)
    assert (cora.training.final_weight_decay, cora.scar) == (2e-5, {"alpha": 5e-6, "beta": 4e-4})
    assert (pubmed.training.hidden, pubmed.training.dropout, pubmed.scar["beta"]) == (6, 0.5, 5e-5)
    assert cora.backbone.elu_alpha == 0.2


def test_gats_base_models():
    """GATS's code has one schedule for both backbones, and no decay but on the graphs of Planetoid."""
    gcn, gat = recipe("gats", "gcn", "cora"), recipe("gats", "gat", "cora")
    for t in (gcn, gat):
        assert (t.lr, t.dropout, t.epochs, t.patience, t.monitor, t.init) == (0.01, 0.5, 2000, 100, "both", "glorot")
    assert (gcn.hidden, gcn.input_dropout) == (64, 0.0)
    assert (gat.hidden, gat.input_dropout) == (8, 0.5)
    for backbone in ("gcn", "gat"):
        for graph, decay in (("citeseer", 5e-4), ("pubmed", 5e-4), ("photo", 0.0), ("physics", 0.0), ("corafull", 0.0)):
            assert recipe("gats", backbone, graph).weight_decay == decay


def test_official_backbone_settings():
    assert preset("official", "gcnii", "cora").backbone.layers == 64
    chameleon = preset("official", "gcnii", "chameleon")
    assert (chameleon.backbone.layers, chameleon.backbone.theta, chameleon.backbone.alpha) == (8, 1.5, 0.2)
    assert preset("official", "gat", "pubmed").backbone.output_heads == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pyg", "gcn"), "unknown recipe 'pyg'; choose among cagcn, scar-code, official, gats"),
        (("cagcn", "gnc"), "unknown backbone 'gnc'; choose among gcn"),
        (("scar-code", "sgc"), "recipe 'scar-code' does not say how to train 'sgc'; it knows gcn, gat"),
    ],
)
def test_unknown_names_list_the_choices(arguments, message):
    with pytest.raises(ValueError, match=message):
        recipe(*arguments)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"optimizer": "lion"}, "optimizer='lion' is not one of adam, adamw, sgd"),
        ({"monitor": "ece"}, "monitor='ece' is not one of"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\); got 1.0"),
        ({"epochs": 0}, "epochs must be at least 1; got 0"),
        ({"patience": 0}, "patience must be at least 1; got 0"),
        ({"final_weight_decay": -1e-4}, "final_weight_decay must not be negative"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Training(**wrong)
