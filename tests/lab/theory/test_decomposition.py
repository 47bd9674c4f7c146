"""Theorem 3.2 and Eq. 8 on trained models."""

from __future__ import annotations

import pytest
import torch
from small_models import double_graph, trained, with_head
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

from graphcal.core import FinalLayer, Outputs
from graphcal.lab.theory import decompose, solve_head, stationarity
from graphcal.observation import observe


@pytest.fixture
def graph() -> Data:
    return double_graph()


def test_stationarity_vanishes_for_a_converged_head_and_not_before(graph: Data) -> None:
    out = observe(trained(graph), graph)
    y = graph.y[graph.train_mask]
    solved = with_head(out, solve_head(out.final_representation[graph.train_mask], y, 4, 1e-3))
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
        value = cross_entropy(layer(out.final_representation[train]), graph.y[train])
        value = value + 0.005 * sum(p.square().sum() for p in layer.parameters())
        value.backward()
        return value

    optimizer.step(loss)
    result = stationarity(with_head(out, FinalLayer.from_weight(layer.weight, layer.bias)), 0.01)
    assert result.relative < 1e-5
    assert result.bias_relative < 1e-4


def test_stationarity_says_what_is_missing(graph: Data) -> None:
    with pytest.raises(ValueError, match="no final layer"):
        stationarity(Outputs(torch.randn(150, 4), graph), 1e-3)


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("conv", [GCNConv, SAGEConv])
def test_the_terms_add_up_to_the_logits(graph: Data, conv: type[nn.Module], corrected: bool) -> None:
    out = observe(trained(graph, conv), graph)
    parts = decompose(out, torch.tensor([3, 80]), corrected=corrected)
    assert torch.allclose(parts.logits, out.logits[[3, 80]], atol=1e-10)
    assert torch.allclose(parts.contributions().sum(1), parts.intra + parts.inter, atol=1e-10)


def test_eq_8_has_no_residual_at_a_stationary_point(graph: Data) -> None:
    out = observe(trained(graph), graph)
    train = graph.train_mask
    solved = with_head(out, solve_head(out.final_representation[train], graph.y[train], 4, 1e-2))
    for parts in (decompose(solved, weight_decay=1e-2, corrected=False), decompose(solved)):
        assert parts.unexplained < 1e-5
        assert parts.correction < 1e-4
    assert (parts.coefficients[torch.arange(40), graph.y[train]] > 0).all()  # own class: 1 - s > 0


def test_the_correction_explains_what_the_printed_equation_does_not(graph: Data) -> None:
    out = observe(trained(graph), graph)
    printed, corrected = decompose(out, corrected=False), decompose(out)
    assert corrected.unexplained < 0.2 * printed.unexplained
    assert corrected.effective_decay == printed.effective_decay > 0
    with pytest.raises(ValueError, match="divides by the decay"):
        decompose(out, weight_decay=0.0)
