"""Propagation matrices of graph networks, from the plain 0/1 adjacency A.

symmetric           D^-1/2 (A + I) D^-1/2, D the degrees of A + I     GCN, GCNII, APPNP, SGC, JK-Net, GPN
symmetric_no_loops  D^-1/2 A D^-1/2, degrees at least 1               FAGCN
mean                D^-1 A                                            GraphSAGE
add_self_loops      A + I                                             GAT
no_edges            0                                                 MLP
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor

Vector = np.ndarray[Any, np.dtype[np.float64]]


def plain_adjacency(edge_index: Tensor, num_nodes: int) -> sp.csr_matrix:
    """0/1, no self loops; row i holds the nodes that i receives from (edges run from edge_index[0] to edge_index[1])."""
    source, target = edge_index.cpu().numpy()
    other = source != target
    ones = np.ones(int(other.sum()), np.float32)
    matrix = sp.csr_matrix((ones, (target[other], source[other])), shape=(num_nodes, num_nodes))
    matrix.data[:] = 1  # repeated edges count once
    return matrix


def add_self_loops(adjacency: sp.csr_matrix) -> sp.csr_matrix:
    matrix = (adjacency + sp.identity(adjacency.shape[0], dtype=np.float32, format="csr")).tocsr()
    matrix.sort_indices()
    return matrix


def symmetric(adjacency: sp.csr_matrix) -> sp.csr_matrix:
    matrix = add_self_loops(adjacency)
    scale = 1 / np.sqrt(_degrees(matrix))
    return _scaled(scale, matrix, scale)


def symmetric_no_loops(adjacency: sp.csr_matrix) -> sp.csr_matrix:
    scale = 1 / np.sqrt(np.maximum(_degrees(adjacency), 1))
    return _scaled(scale, adjacency, scale)


def mean(adjacency: sp.csr_matrix) -> sp.csr_matrix:
    return _scaled(1 / np.maximum(_degrees(adjacency), 1), adjacency, np.ones(adjacency.shape[0]))


def no_edges(adjacency: sp.csr_matrix) -> sp.csr_matrix:
    return sp.csr_matrix(adjacency.shape, dtype=np.float32)


def _degrees(matrix: sp.csr_matrix) -> Vector:
    return np.asarray(matrix.sum(1), dtype=np.float64).ravel()


def _scaled(left: Vector, matrix: sp.csr_matrix, right: Vector) -> sp.csr_matrix:
    """diag(left) matrix diag(right)"""
    out = matrix.tocsr().copy()
    out.data = (out.data * np.repeat(left, np.diff(out.indptr)) * right[out.indices]).astype(np.float32)
    return out
