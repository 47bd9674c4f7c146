"""The tables measure what their columns say, and shift at test time only."""

from __future__ import annotations

import pytest
import torch

from conftest import random_graph
from graphcal import metrics
from graphcal.lab.shift import out_of_distribution, wrong_predictions
from graphcal.lab.shift.experiments import separation
from graphcal.lab.training import Training, train
from graphcal.methods import SCAR, TemperatureScaling, Uncalibrated

QUICK = Training(hidden_channels=8, epochs=30, patience=None, dropout=0.0)
FEW = {"none": Uncalibrated(), "ts": TemperatureScaling(), "scar": SCAR()}


def test_separation_is_the_share_of_pairs_in_the_right_order() -> None:
    assert separation(torch.tensor([0.9, 0.5]), torch.tensor([0.6, 0.1])) == pytest.approx(0.75)


def test_wrong_predictions_are_the_models_own_numbers() -> None:
    data = random_graph()
    rows = {row["method"]: row for row in wrong_predictions(data, training=QUICK, seeds=[0], methods=FEW)}
    out = train(data, training=QUICK, seeds=[0])[0].outputs
    test, y = data.test_mask, data.y[data.test_mask]
    fitted = TemperatureScaling().fit(out, on=data.val_mask)
    assert rows["ts"]["nll"] == pytest.approx(metrics.nll(fitted(out)[test].detach(), y), abs=1e-4)
    assert rows["none"]["accuracy"] == rows["ts"]["accuracy"] == rows["scar"]["accuracy"]
    assert all(row["changed"] == 0 for row in rows.values())


@pytest.mark.slow
def test_the_suite_shifts_at_test_time_only() -> None:
    data = random_graph()
    rows = out_of_distribution(data, training=QUICK, seeds=[0], shares=(0.0, 1.0), unknown=2, methods=FEW)
    plain = {row["method"]: row for row in wrong_predictions(data, training=QUICK, seeds=[0], methods=FEW)}
    for row in rows:
        if row["share"] == 0.0:
            assert row["nll"] == pytest.approx(plain[row["method"]]["nll"], abs=1e-4)
    full = {(row["shift"], row["method"]): row for row in rows if row["share"] == 1.0}
    assert full["features", "none"]["accuracy"] < plain["none"]["accuracy"] - 0.1
    assert 0 < full["unknown class", "ts"]["confidence_unknown"] < 1
    assert 0 <= full["unknown class", "ts"]["auroc_unknown"] <= 1
    again = out_of_distribution(data, training=QUICK, seeds=[0], shares=(0.0, 1.0), unknown=2, methods=FEW)
    assert again == rows
