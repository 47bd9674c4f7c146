"""Planetoid's files are put together as published, and cannot run code."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from planetoid_small import planetoid_files

from graphcal.lab.datasets._raw import read_planetoid, unpickle


def test_planetoid_files_are_put_back_in_order() -> None:
    graph = read_planetoid(planetoid_files().__getitem__)
    assert graph.edge_index.tolist() == [[0, 0, 1, 2, 4, 5, 6, 7], [1, 5, 0, 4, 2, 0, 7, 6]]
    assert graph.features.toarray().tolist()[4:] == [[0, 0, 3], [0, 2, 0], [0, 0, 0], [1, 1, 1]]
    assert graph.labels.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert graph.splits["no_label"].tolist() == [6]
    assert graph.splits["self_loops"].tolist() == [1]
    assert graph.splits["test"].tolist() == [4, 5, 7]
    assert graph.labelled.tolist() == [True] * 6 + [False, True]


class Bomb:
    """A pickle that would run a command."""

    def __reduce__(self):
        return os.system, ("touch exploded",)


def test_the_unpickler_refuses_what_planetoid_does_not_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for bad in (Bomb(), print, pickle.Unpickler, np.load):
        with pytest.raises(pickle.UnpicklingError, match="refused"):
            unpickle(pickle.dumps(bad))
    assert not list(tmp_path.iterdir())
