"""`graphcal run` and tables: its calibrated predictions are read and scored like any table."""

from __future__ import annotations

import torch

import graphcal
from graphcal.tables.reading import read_table
from graphcal.tables.scoring import score


def test_run_writes_its_calibrated_predictions(tmp_path):
    data = graphcal.lab.synthetic(400, seed=1)
    results = graphcal.lab.run(data, "gcn", ["ts"], seeds=range(1), training=graphcal.lab.Training(epochs=20))
    results.save(tmp_path)
    table = read_table(tmp_path / "calibrated.parquet")
    assert table.y.tolist() == data.y.tolist()
    assert table.split.test.tolist() == data.test_mask.tolist()
    score(tmp_path / "calibrator.safetensors", tmp_path / "calibrated.parquet", tmp_path / "s")
    scored = read_table(tmp_path / "s" / "calibrated.parquet")
    torch.testing.assert_close(scored.log_probs, table.log_probs, atol=1e-5, rtol=0)
