"""SCAR's published settings, as its paper and its code have them."""

import pytest

from graphcal.lab.training import published

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


@pytest.mark.parametrize(("cell", "expected"), PUBLISHED_GCN.items(), ids=str)
def test_scars_gcn_settings(cell, expected):
    made = published("scar-code", "gcn", *cell)
    t = made.training
    assert (t.lr, t.hidden_channels, t.dropout, t.final_weight_decay) == expected[:4]
    assert (made.scar["alpha"], made.scar["beta"], t.final_lr) == expected[4:]
    assert (t.input_dropout, t.init, t.patience, t.weight_decay) == (t.dropout, "negative-normal", None, 5e-4)


def test_scars_gat_settings():
    cora, pubmed = published("scar-code", "gat", "cora", 20), published("scar-code", "gat", "pubmed", 40)
    assert (cora.training.lr, cora.training.hidden_channels, cora.training.dropout) == (0.01, 8, 0.5)
    assert (cora.training.final_weight_decay, cora.scar) == (2e-5, {"alpha": 5e-6, "beta": 4e-4})
    assert (pubmed.training.hidden_channels, pubmed.training.dropout, pubmed.scar["beta"]) == (6, 0.5, 5e-5)
    assert cora.backbone.elu_alpha == 0.2
