"""DC-GNN reads the neighbours."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from graphcal.lab.baselines import DCGNN
from small_outputs import model_outputs


@pytest.fixture(scope="module")
def out():
    return model_outputs()


def test_dcgnn_reads_agreement(out):
    fitted = DCGNN(epochs=30).fit(out, out.graph.val_mask)
    assert fitted.w1.shape == (4 + 2, 16)
    apart = Data(x=out.graph.x, edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=out.num_nodes)
    assert not torch.allclose(fitted(replace(out, graph=apart)), fitted(out))
