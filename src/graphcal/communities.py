"""Nested communities of a graph at several resolutions, by modularity (Louvain), for graphs of millions of edges.

    gain of moving node i to community c    w(i, c) - resolution k_i K_c / 2m

w(i, c) is the weight of edges from i into c, k_i the degree, K_c the degree of c without i, m the number of edges. A random half
of the nodes looks for the best community and moves at once; then communities become nodes. A coarser resolution
goes on from the communities of the finer one, so they are nested and only the first one reads all edges. Memory is a few copies
of the edge list. The result depends on ``seed`` and on how the nodes are numbered, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Labels = NDArray[np.int64]
RESOLUTIONS = (100.0, 25.0, 5.0, 1.0)
HIERARCHIES = 4  # seeds
SWEEPS, FEW = 10, 0.005  # at most, until fewer than this share of the nodes moves


def communities(
    edge_index: Any, num_nodes: int, resolutions: Sequence[float] = RESOLUTIONS, seed: int = 0
) -> list[Labels]:
    """Community of every node (N,) at each resolution, from fine to coarse; directions of edges do not count.

    >>> two_triangles = [[0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3]]
    >>> [part.tolist() for part in communities(two_triangles, 6, [1.0])]
    [[0, 0, 0, 1, 1, 1]]
    """
    return _nested(_symmetric(edge_index, num_nodes), resolutions, seed)


def hierarchies(edge_index: Any, num_nodes: int) -> NDArray[np.int32]:
    """Communities (16, N) of four seeds, from fine to coarse for each."""
    graph = _symmetric(edge_index, num_nodes)
    parts = [part.astype(np.int32) for seed in range(HIERARCHIES) for part in _nested(graph, RESOLUTIONS, seed)]
    return np.stack(parts)


def _symmetric(edge_index: Any, num_nodes: int) -> sp.csr_matrix:
    row, col = np.asarray(edge_index)
    ones = np.ones(len(row), dtype=np.float32)
    graph = sp.coo_matrix((ones, (row, col)), shape=(num_nodes, num_nodes)).tocsr()
    return graph + graph.T


def _nested(graph: sp.csr_matrix, resolutions: Sequence[float], seed: int) -> list[Labels]:
    rng, labels, parts = np.random.default_rng(seed), np.arange(graph.shape[0]), []
    for resolution in sorted(resolutions, reverse=True):
        while True:
            moved = _local_moves(graph, resolution, rng)
            fewer = int(moved.max(initial=-1)) + 1
            if fewer == graph.shape[0]:
                break
            labels = moved[labels]
            member = sp.csr_matrix(
                (np.ones(len(moved), np.float32), (np.arange(len(moved)), moved)), shape=(len(moved), fewer)
            )
            graph = (member.T @ graph @ member).tocsr()
        parts.append(np.unique(labels, return_inverse=True)[1].reshape(-1))
    return parts


def _local_moves(graph: sp.csr_matrix, resolution: float, rng: np.random.Generator) -> Labels:
    """Communities of nodes (n,), numbered from 0, after sweeps of single moves."""
    degree = np.asarray(graph.sum(axis=1), dtype=np.float64).ravel()
    others = graph - sp.diags(graph.diagonal(), dtype=np.float32, format="csr")
    others.eliminate_zeros()
    labels, n, rate = np.arange(len(degree)), len(degree), resolution / max(degree.sum(), 1.0)
    for _ in range(SWEEPS):
        total = np.bincount(labels, degree, minlength=n)
        rows = np.flatnonzero(rng.random(n) < 0.5)
        into = others[rows] @ sp.csr_matrix((np.ones(n, np.float32), labels, np.arange(n + 1)), shape=(n, n))
        counts = np.diff(into.indptr)
        mine, weight = labels[rows], degree[rows]
        position, target = np.repeat(np.arange(len(rows)), counts), into.indices
        same = mine[position] == target
        gain = into.data - rate * weight[position] * (total[target] - same * weight[position])
        stay = -rate * weight * (total[mine] - weight)
        stay[position[same]] = gain[same]
        best, start = np.full(len(rows), -np.inf), into.indptr[:-1][counts > 0]
        if len(start):
            best[counts > 0] = np.maximum.reduceat(gain, start)
        first = np.flatnonzero(gain == best[position])[::-1]  # written last: the first of equal ones
        choice = mine.copy()
        choice[position[first]] = target[first]
        moves = best > stay + 1e-9
        labels[rows[moves]] = choice[moves]
        if moves.sum() <= FEW * n / 2:
            break
    return np.unique(labels, return_inverse=True)[1].reshape(-1)
