"""Shared by the tests of sparse kernels: a small matrix, and a comparison of values and gradients."""

import numpy as np
import scipy.sparse as sp
import torch


def example(rows=9, cols=7, density=0.4, seed=0):
    made = sp.random(rows, cols, density, dtype=np.float32, random_state=np.random.default_rng(seed)).toarray()
    made[3] = 0  # an empty row
    return sp.csr_matrix(made)


def same_value_and_gradients(function, reference, *inputs, atol=1e-5):
    results = []
    for f in (function, reference):
        leaves = [t.clone().requires_grad_() for t in inputs]
        out = f(*leaves)
        weights = torch.arange(out.numel(), dtype=out.dtype).view(out.shape).sin()
        (out * weights).sum().backward()
        results.append([out.detach(), *[leaf.grad for leaf in leaves]])
    for mine, theirs in zip(*results):
        assert torch.allclose(mine, theirs, atol=atol)
