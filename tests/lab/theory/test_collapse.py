"""Neural collapse: angles and spread on representations made by hand."""

from __future__ import annotations

import pytest
import torch

from conftest import random_graph
from graphcal.core import FinalLayer, Outputs
from graphcal.lab.theory import neural_collapse


def outputs(hidden: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> Outputs:
    graph = random_graph(nodes=len(y), classes=len(weight))
    graph.y = y
    return Outputs(hidden @ weight.T, graph, FinalLayer.from_weight(weight), hidden)


def test_a_collapsed_head_has_no_angle_and_no_spread() -> None:
    y = torch.arange(3).repeat(20)
    means = torch.eye(3) * 2 + 5.0  # a shift of all classes does not count
    at = neural_collapse(outputs(means[y], 0.1 * torch.eye(3), y), torch.ones(60, dtype=torch.bool))
    assert at.angles.tolist() == pytest.approx([0.0] * 3, abs=1e-4)
    assert at.spread == pytest.approx(0.0, abs=1e-9)


def test_angle_and_spread_by_hand() -> None:
    """Two classes at (1, 0) and (-1, 0), weights at 60 degrees to that line, points at distance 0.5 of their mean."""
    y = torch.tensor([0, 0, 1, 1])
    hidden = torch.tensor([[1.0, 0.5], [1.0, -0.5], [-1.0, 0.5], [-1.0, -0.5]])
    w = torch.tensor([0.5, 3**0.5 / 2])
    at = neural_collapse(outputs(hidden, torch.stack([w, -w]), y), torch.ones(4, dtype=torch.bool))
    assert at.angles.tolist() == pytest.approx([60.0, 60.0], abs=1e-4)
    assert at.spread == pytest.approx(0.25)
