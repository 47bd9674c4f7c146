"""A graph that comes without a split gets one, and says so."""

from __future__ import annotations

from pathlib import Path

import torch
from own_graph import tables, write

from graphcal.lab.datasets import read


def test_a_missing_split_is_made_and_said(tmp_path: Path) -> None:
    nodes, edges = tables()
    del nodes["split"]
    folder = write(tmp_path, nodes, edges, "parquet")
    data, again, other = read(folder), read(folder), [read(folder, seed=seed) for seed in range(1, 6)]
    assert "no split given: 60/20/20 stratified by class, seed 0" in data.notes
    assert data.protocol == "stratified 60/20/20, seed 0"
    parts = data.train_mask.int() + data.val_mask.int() + data.test_mask.int()
    assert parts.tolist() == [1] * 7 + [0]
    assert set(data.y[data.train_mask].tolist()) == {0, 1}
    assert torch.equal(data.train_mask, again.train_mask)
    assert any(not torch.equal(data.train_mask, one.train_mask) for one in other)
