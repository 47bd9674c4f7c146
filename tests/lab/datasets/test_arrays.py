"""A graph as arrays: written, read, hashed, made undirected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from planetoid_small import planetoid_files

from graphcal.lab.datasets._raw import read_planetoid
from graphcal.lab.datasets.arrays import GraphArrays, digest, load_npz, save_npz, symmetrise


def test_the_layout_survives_a_round_trip(tmp_path: Path) -> None:
    graph = read_planetoid(planetoid_files().__getitem__)
    save_npz(tmp_path / "deep" / "small.npz", graph)
    again = load_npz(tmp_path / "deep" / "small.npz")
    assert digest(again) == digest(graph)
    assert {key: value.tolist() for key, value in again.splits.items()} == {
        key: value.tolist() for key, value in graph.splits.items()
    }
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["small.npz"], "no partial file is left"


def test_digest_sees_every_part() -> None:
    graph = read_planetoid(planetoid_files().__getitem__)
    labels, features, edges = graph.labels.copy(), graph.features.copy(), graph.edge_index.copy()
    labels[0], features.data[0], edges[0, 0] = 1, 9, 3
    changed = [
        GraphArrays(graph.edge_index, graph.features, labels),
        GraphArrays(graph.edge_index, features, graph.labels),
        GraphArrays(edges, graph.features, graph.labels),
    ]
    assert len({digest(graph), *(digest(other) for other in changed)}) == 4


def test_symmetrise_says_what_it_changed() -> None:
    edge_index, notes = symmetrise(np.array([0, 0, 1, 2, 2]), np.array([1, 1, 0, 2, 0]), 3)
    assert edge_index.tolist() == [[0, 0, 1, 2], [1, 2, 0, 0]]
    assert notes == [
        "1 self loops dropped",
        "1 repeated edges dropped",
        "1 of 3 edges had one direction only; both are kept now",
    ]
    assert symmetrise(np.array([], dtype=int), np.array([], dtype=int), 3)[0].shape == (2, 0)
