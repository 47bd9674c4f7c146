"""Propagation matrices against their dense formulas."""

import numpy as np
import pytest
import torch

from graphcal.lab.engine import sparse
from graphcal.observation.batches import feature_matrix

EDGES = torch.tensor([[0, 1, 1, 2, 3, 3, 0], [1, 0, 2, 1, 3, 0, 1]])  # a loop at 3, the edge 0 -> 1 twice, node 4 alone
A = np.zeros((5, 5))
A[1, 0] = A[0, 1] = A[2, 1] = A[1, 2] = A[0, 3] = 1  # row: who receives
LOOPS = A + np.eye(5)


def inverse_root(degrees):
    return np.diag(1 / np.sqrt(degrees))


FORMULAS = {
    "add_self_loops": LOOPS,
    "symmetric": inverse_root(LOOPS.sum(1)) @ LOOPS @ inverse_root(LOOPS.sum(1)),
    "symmetric_no_loops": inverse_root(A.sum(1).clip(1)) @ A @ inverse_root(A.sum(1).clip(1)),
    "mean": np.diag(1 / A.sum(1).clip(1)) @ A,
    "no_edges": np.zeros((5, 5)),
}


def test_the_plain_adjacency_has_no_loops_and_no_repetitions():
    assert np.array_equal(sparse.plain_adjacency(EDGES, 5).toarray(), A)


@pytest.mark.parametrize("name", FORMULAS)
def test_the_formula(name):
    made = getattr(sparse, name)(sparse.plain_adjacency(EDGES, 5))
    assert np.allclose(made.toarray(), FORMULAS[name], atol=1e-6)


def test_features_may_be_dense_or_sparse():
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    for form in (x, x.to_sparse_csr(), x.to_sparse()):
        assert np.array_equal(feature_matrix(form).toarray(), x.numpy())
