"""Eq. 8: the terms add up, nothing is left at a stationary point, and the correction explains the rest."""

from __future__ import annotations

import pytest
import torch
from small_models import double_graph, trained, with_head
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

from graphcal.observation import observe
from graphcal.theory import decompose, solve_head


@pytest.fixture
def graph() -> Data:
    return double_graph()


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("conv", [GCNConv, SAGEConv])
def test_the_terms_add_up_to_the_logits(graph: Data, conv: type[nn.Module], corrected: bool) -> None:
    out = observe(trained(graph, conv), graph)
    found = decompose(out, torch.tensor([3, 80]), corrected=corrected)
    assert torch.allclose(found.logits, out.logits[[3, 80]], atol=1e-10)
    assert torch.allclose(found.contributions().sum(1), found.intra + found.inter, atol=1e-10)


def test_eq_8_has_no_residual_at_a_stationary_point(graph: Data) -> None:
    out = observe(trained(graph), graph)
    train = graph.train_mask
    solved = with_head(out, solve_head(out.hidden[train], graph.y[train], 4, 1e-2))
    for found in (decompose(solved, weight_decay=1e-2, corrected=False), decompose(solved)):
        assert found.unexplained < 1e-5
        assert found.correction < 1e-4
    assert (found.coefficients[torch.arange(40), graph.y[train]] > 0).all()  # own class: 1 - s > 0


def test_the_correction_explains_what_the_printed_equation_does_not(graph: Data) -> None:
    out = observe(trained(graph), graph)
    printed, corrected = decompose(out, corrected=False), decompose(out)
    assert corrected.unexplained < 0.2 * printed.unexplained
    assert corrected.effective_decay == printed.effective_decay > 0
    with pytest.raises(ValueError, match="divides by the decay"):
        decompose(out, weight_decay=0.0)
