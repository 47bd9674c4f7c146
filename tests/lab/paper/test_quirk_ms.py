"""CaGCN's matrix."""

from __future__ import annotations

import torch

from conftest import random_graph
from graphcal.lab.paper.quirks.ms_cagcn import CaGCNsMS
from graphcal.methods import MatrixScaling
from small_outputs import model_outputs, val_nll


def test_the_matrix_of_the_published_rows_is_another_one():
    out = model_outputs(random_graph(nodes=600, train=60, val=300))
    exact, cagcn = (recipe.fit(out, out.graph.val_mask) for recipe in (MatrixScaling(), CaGCNsMS()))
    assert not torch.allclose(exact.matrix, cagcn.matrix, atol=0.05)
    assert val_nll(exact, out) < val_nll(cagcn, out)
