"""Communities: nested, deterministic, and those that were planted."""

from __future__ import annotations

import numpy as np
import pytest

from graphcal.communities import communities


def planted(blocks: int = 12, size: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    block = np.repeat(np.arange(blocks), size)
    source = np.repeat(np.arange(blocks * size), 10)
    inside = block[source] * size + rng.integers(0, size, len(source))
    target = np.where(rng.random(len(source)) < 0.9, inside, rng.integers(0, blocks * size, len(source)))
    return np.stack([source, target]), block


def agreement(part: np.ndarray, block: np.ndarray) -> float:
    """Share of nodes in the majority block of their community."""
    return sum(np.bincount(block[part == c]).max() for c in np.unique(part)) / len(block)


def test_planted_blocks_are_found_and_parts_are_nested():
    edges, block = planted()
    fine, middle, coarse = communities(edges, len(block), (25.0, 5.0, 1.0))
    assert agreement(coarse, block) > 0.9
    assert 8 <= coarse.max() + 1 <= 16
    assert coarse.max() <= middle.max() <= fine.max()
    for finer, coarser in ((fine, middle), (middle, coarse)):
        pairs = np.unique(np.stack([finer, coarser], 1), axis=0)
        assert len(pairs) == finer.max() + 1  # every community lies in one of the coarser ones


def modularity(part: np.ndarray, edges: np.ndarray) -> float:
    source, target = np.concatenate([edges, edges[::-1]], 1)
    degree = np.bincount(source, minlength=len(part))
    inside = (part[source] == part[target]).mean()
    return float(inside - ((np.bincount(part, degree) / len(source)) ** 2).sum())


def test_modularity_is_near_that_of_networkx():
    networkx = pytest.importorskip("networkx")
    edges, block = planted(seed=3)
    edges = np.unique(edges[:, edges[0] < edges[1]], axis=1)
    graph = networkx.Graph(edges.T.tolist())
    sets = networkx.community.louvain_communities(graph, seed=0)
    reference = np.empty(len(block), dtype=int)
    for k, members in enumerate(sets):
        reference[list(members)] = k
    (ours,) = communities(edges, len(block), (1.0,))
    assert modularity(ours, edges) > modularity(reference, edges) - 0.02


def test_the_seed_decides_and_directions_do_not_count():
    edges, block = planted(seed=1)
    first, again, other = (communities(edges, len(block), seed=seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other))
    turned = communities(edges[::-1], len(block))
    assert all(np.array_equal(a, b) for a, b in zip(first, turned))


def test_isolated_nodes_stay_alone():
    (part,) = communities([[0, 1], [1, 0]], 4, (1.0,))
    assert part[0] == part[1]
    assert len(set(part.tolist())) == 3
    assert communities(np.empty((2, 0), dtype=int), 2, (1.0,))[0].tolist() == [0, 1]
