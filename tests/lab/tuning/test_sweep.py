"""A sweep puts the decay where it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conftest import random_graph
from graphcal import metrics
from graphcal.lab.training import Training, train
from graphcal.lab.tuning import sweep_decay

QUICK = Training(hidden_channels=8, epochs=40, patience=None, dropout=0.0, weight_decay=5e-3)


def test_a_sweep_puts_the_decay_where_it_says() -> None:
    data = random_graph()
    rows = sweep_decay(data, training=QUICK, decays=[5e-3, 0.3], seeds=[0], which=("final", "global", "others"))
    assert [(row["which"], row["decay"]) for row in rows] == [
        (which, decay) for which in ("final", "global", "others") for decay in (5e-3, 0.3)
    ]
    same = [row for row in rows if row["decay"] == 5e-3]  # the training's own decay: the place cannot matter
    assert same[0]["nll"] == pytest.approx(same[1]["nll"], abs=1e-5) == pytest.approx(same[2]["nll"], abs=1e-5)
    by_place = {row["which"]: row for row in rows if row["decay"] == 0.3}
    overrides = {
        "final": {"final_weight_decay": 0.3},
        "global": {"weight_decay": 0.3},
        "others": {"weight_decay": 0.3, "final_weight_decay": 5e-3},
    }
    for which, settings in overrides.items():
        out = train(data, training=replace(QUICK, **settings), seeds=[0])[0].outputs
        log_probs, y = out.logits[data.test_mask].log_softmax(-1), data.y[data.test_mask]
        assert by_place[which]["nll"] == pytest.approx(metrics.nll(log_probs, y), abs=1e-4)
        assert by_place[which]["signed_gap"] == pytest.approx(metrics.signed_gap(log_probs, y), abs=1e-5)
