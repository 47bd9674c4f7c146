"""Theorem 3.2 as a condition: it holds where training stands still, and not before."""

from __future__ import annotations

import pytest
import torch
from small_models import double_graph, trained, with_head
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from graphcal.core import FinalLayer, Outputs
from graphcal.observation import observe
from graphcal.theory import solve_head, stationarity


@pytest.fixture
def graph() -> Data:
    return double_graph()


def test_stationarity_vanishes_for_a_converged_head_and_not_before(graph: Data) -> None:
    out = observe(trained(graph), graph)
    y = graph.y[graph.train_mask]
    solved = with_head(out, solve_head(out.hidden[graph.train_mask], y, 4, 1e-3))
    there = stationarity(solved, 1e-3)
    assert there.relative < 1e-5
    assert there.norm < 1e-6 + float(1e-3 * solved.final.bias.norm())  # the solved head's bias is not decayed
    assert there.effective_decay == pytest.approx(1e-3, rel=1e-4)
    assert there.cosine == pytest.approx(1, abs=1e-6)
    assert stationarity(solved, 2e-3).relative > 0.4
    assert stationarity(out, 5e-4).relative > 0.1


def test_stationarity_counts_the_bias_and_the_mean_loss(graph: Data) -> None:
    """Full-batch descent on mean loss + decay/2 (|W|^2 + |b|^2) must bring both residuals to nothing."""
    out = observe(trained(graph), graph)
    train = graph.train_mask
    layer = nn.Linear(12, 4).double()
    optimizer = torch.optim.LBFGS(layer.parameters(), 1.0, 500, None, 1e-12, 1e-16, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = cross_entropy(layer(out.hidden[train]), graph.y[train])
        value = value + 0.005 * sum(p.square().sum() for p in layer.parameters())
        value.backward()
        return value

    optimizer.step(loss)
    found = stationarity(with_head(out, FinalLayer.from_weight(layer.weight, layer.bias)), 0.01)
    assert found.relative < 1e-5
    assert found.bias_relative < 1e-4


def test_stationarity_says_what_is_missing(graph: Data) -> None:
    with pytest.raises(ValueError, match="no final.weight and no hidden"):
        stationarity(Outputs(torch.randn(150, 4), graph), 1e-3)
