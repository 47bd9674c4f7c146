"""Proposition 3.3 in the form that is true, and the pair that breaks the printed one."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import double_graph, trained
from torch_geometric.data import Data

from graphcal.lab.theory import HeadPath, head_path, solve_head
from graphcal.observation import observe


@pytest.fixture
def graph() -> Data:
    return double_graph()


@given(st.integers(0, 10_000), st.integers(2, 5))
@settings(max_examples=15, deadline=None)
def test_frobenius_norm_and_mean_squared_distance_fall_with_the_decay(seed: int, classes: int) -> None:
    g = torch.Generator().manual_seed(seed)
    h = torch.randn(20, 3, generator=g, dtype=torch.double)
    y = torch.arange(20) % classes
    path = HeadPath([1e-3, 1e-2, 1e-1, 1.0], [solve_head(h, y, classes, d) for d in (1e-3, 1e-2, 1e-1, 1.0)])
    assert all(small >= large - 1e-7 for small, large in zip(path.norms, path.norms[1:]))
    squared = path.distances.square().sum((1, 2)) / 2  # over the pairs i < j
    for total, norm in zip(squared.tolist(), path.norms):
        assert total == pytest.approx(classes * norm**2, rel=1e-6, abs=1e-10)


def test_a_single_pair_of_centroids_can_move_apart_as_the_decay_grows() -> None:
    """The paper's proposition, stated for every pair, is false: here is a pair that triples its distance."""
    g = torch.Generator().manual_seed(79)
    h = torch.randn(12, 2, generator=g).double()
    y = torch.randint(3, (12,), generator=g)
    y[:3] = torch.arange(3)
    path = HeadPath([1e-3, 1e-1], [solve_head(h, y, 3, d) for d in (1e-3, 1e-1)])
    assert path.rising_pairs == [(0, 2)]
    assert path.distances[1, 0, 2] > 2 * path.distances[0, 0, 2]


def test_head_path_reads_the_training_nodes_and_refuses_a_zero_decay(graph: Data) -> None:
    out = observe(trained(graph), graph)
    path = head_path(out, [1e-2, 1e-3])
    assert path.norms[0] < path.norms[1]
    assert math.isclose(float(path.distances[0, 1, 1]), 0)
    with pytest.raises(ValueError, match="decays must be positive"):
        head_path(out, [1e-3, 0.0])
