"""The paper's claims, each in the form in which it holds, and the places where the printed form does not."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

from conftest import random_graph
from graphcal.core import FinalLayer, Outputs
from graphcal.observation import observe
from graphcal.theory import (
    HeadPath,
    decompose,
    head_path,
    one_step,
    solve_head,
    stationarity,
    stepped_logits,
    theorem_3_1,
)


class TwoLayers(nn.Module):
    def __init__(self, conv: type[nn.Module], features: int, classes: int, hidden: int = 12) -> None:
        super().__init__()
        self.first, self.head = conv(features, hidden), conv(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.first(x, edge_index).relu(), edge_index)


@pytest.fixture
def double_graph() -> Data:
    data = random_graph()
    data.x = data.x.double()
    return data


def trained(data: Data, conv: type[nn.Module] = GCNConv, decay: float = 5e-4, epochs: int = 60) -> nn.Module:
    torch.manual_seed(0)
    model = TwoLayers(conv, data.x.shape[1], 4).to(data.x.dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=decay)
    for _ in range(epochs):
        optimizer.zero_grad()
        cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    return model


# ------------------------------------------------------------------------------------------------------- Theorem 3.1


@given(st.integers(0, 10_000), st.floats(1e-3, 0.5), st.floats(0, 0.5))
@settings(max_examples=40, deadline=None)
def test_theorem_3_1_is_exact_for_one_sgd_step_of_a_linear_head(seed: int, lr: float, decay: float) -> None:
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(5, 7, generator=g, dtype=torch.double, requires_grad=True)
    h, h_next = torch.randn(2, 7, generator=g, dtype=torch.double)
    y = int(torch.randint(5, (), generator=g))
    predicted = theorem_3_1(weight.detach(), h, h_next, y, lr, decay)
    optimizer = torch.optim.SGD([weight], lr=lr, weight_decay=decay)
    cross_entropy((weight @ h)[None], torch.tensor([y])).backward()
    optimizer.step()
    assert torch.allclose(predicted, (weight.detach() @ h_next).softmax(-1), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("conv", [GCNConv, SAGEConv])
@pytest.mark.parametrize("count", [1, 40])
def test_one_sgd_step_of_a_whole_model_obeys_the_theorem(double_graph: Data, conv: type[nn.Module], count: int) -> None:
    nodes = double_graph.train_mask.nonzero().flatten()[:count]
    step = one_step(trained(double_graph, conv), double_graph, nodes, lr=0.1, weight_decay=0.05)
    assert step.gap < 1e-12
    assert step.shrink == pytest.approx(step.shrink_predicted, rel=1e-6)


def test_the_mean_loss_form_contains_the_single_node_theorem() -> None:
    g = torch.Generator().manual_seed(3)
    weight, h, h_next = (torch.randn(*shape, generator=g, dtype=torch.double) for shape in ((4, 6), (1, 6), (1, 6)))
    batch = stepped_logits(weight, h, h_next, torch.tensor([2]), 0.1, 0.01).softmax(-1)[0]
    assert torch.allclose(batch, theorem_3_1(weight, h[0], h_next[0], 2, 0.1, 0.01), atol=1e-14)


def test_adam_with_l2_does_not_shrink_the_head_as_the_theorem_says(double_graph: Data) -> None:
    model, nodes = trained(double_graph), double_graph.train_mask.nonzero().flatten()
    adam = one_step(model, double_graph, nodes, optimizer="adam", warmup=20)
    decoupled = one_step(model, double_graph, nodes, optimizer="adamw", warmup=20)
    assert adam.gap > 1e-5
    assert abs(adam.shrink / adam.shrink_predicted - 1) > 0.5
    assert decoupled.shrink == pytest.approx(decoupled.shrink_predicted, rel=1e-6)


def test_one_step_leaves_the_model_alone_and_names_its_optimisers(double_graph: Data) -> None:
    model = trained(double_graph, epochs=1)
    before = [p.clone() for p in model.parameters()]
    one_step(model, double_graph, torch.tensor(0), warmup=2)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    with pytest.raises(ValueError, match="'rmsprop' is not one of sgd, adam, adamw"):
        one_step(model, double_graph, torch.tensor(0), optimizer="rmsprop")


# ------------------------------------------------------------------------------------------------------- Theorem 3.2


def with_head(out: Outputs, head: FinalLayer) -> Outputs:
    assert out.hidden is not None
    assert head.weight is not None
    hidden = out.hidden.double()
    return Outputs(hidden @ head.weight.T + head.bias, out.graph, head, hidden)


def test_stationarity_vanishes_for_a_converged_head_and_not_before(double_graph: Data) -> None:
    out = observe(trained(double_graph), double_graph)
    y = double_graph.y[double_graph.train_mask]
    solved = with_head(out, solve_head(out.hidden[double_graph.train_mask], y, 4, 1e-3))
    there = stationarity(solved, 1e-3)
    assert there.relative < 1e-5
    assert there.norm < 1e-6 + float(1e-3 * solved.final.bias.norm())  # the solved head's bias is not decayed
    assert there.effective_decay == pytest.approx(1e-3, rel=1e-4)
    assert there.cosine == pytest.approx(1, abs=1e-6)
    assert stationarity(solved, 2e-3).relative > 0.4
    assert stationarity(out, 5e-4).relative > 0.1


def test_stationarity_counts_the_bias_and_the_mean_loss(double_graph: Data) -> None:
    """Full-batch descent on mean loss + decay/2 (|W|^2 + |b|^2) must bring both residuals to nothing."""
    out = observe(trained(double_graph), double_graph)
    train = double_graph.train_mask
    layer = nn.Linear(12, 4).double()
    optimizer = torch.optim.LBFGS(layer.parameters(), 1.0, 500, None, 1e-12, 1e-16, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = cross_entropy(layer(out.hidden[train]), double_graph.y[train])
        value = value + 0.005 * sum(p.square().sum() for p in layer.parameters())
        value.backward()
        return value

    optimizer.step(loss)
    found = stationarity(with_head(out, FinalLayer.from_weight(layer.weight, layer.bias)), 0.01)
    assert found.relative < 1e-5
    assert found.bias_relative < 1e-4


def test_stationarity_says_what_is_missing(double_graph: Data) -> None:
    with pytest.raises(ValueError, match="no final.weight and no hidden"):
        stationarity(Outputs(torch.randn(150, 4), double_graph), 1e-3)


# --------------------------------------------------------------------------------------------------- Proposition 3.3


@given(st.integers(0, 10_000), st.integers(2, 5))
@settings(max_examples=15, deadline=None)
def test_frobenius_norm_and_mean_squared_distance_fall_with_the_decay(seed: int, classes: int) -> None:
    g = torch.Generator().manual_seed(seed)
    h = torch.randn(20, 3, generator=g, dtype=torch.double)
    y = torch.arange(20) % classes
    path = HeadPath([1e-3, 1e-2, 1e-1, 1.0], [solve_head(h, y, classes, d) for d in (1e-3, 1e-2, 1e-1, 1.0)])
    assert all(small >= large - 1e-7 for small, large in zip(path.norms, path.norms[1:]))
    squared = path.distances.square().sum((1, 2)) / 2  # over the pairs i < j
    for total, norm in zip(squared.tolist(), path.norms):
        assert total == pytest.approx(classes * norm**2, rel=1e-6, abs=1e-10)


def test_a_single_pair_of_centroids_can_move_apart_as_the_decay_grows() -> None:
    """The paper's proposition, stated for every pair, is false: here is a pair that triples its distance."""
    g = torch.Generator().manual_seed(79)
    h = torch.randn(12, 2, generator=g).double()
    y = torch.randint(3, (12,), generator=g)
    y[:3] = torch.arange(3)
    path = HeadPath([1e-3, 1e-1], [solve_head(h, y, 3, d) for d in (1e-3, 1e-1)])
    assert path.rising_pairs == [(0, 2)]
    assert path.distances[1, 0, 2] > 2 * path.distances[0, 0, 2]


def test_head_path_reads_the_training_nodes_and_refuses_a_zero_decay(double_graph: Data) -> None:
    out = observe(trained(double_graph), double_graph)
    path = head_path(out, [1e-2, 1e-3])
    assert path.norms[0] < path.norms[1]
    assert math.isclose(float(path.distances[0, 1, 1]), 0)
    with pytest.raises(ValueError, match="decays must be positive"):
        head_path(out, [1e-3, 0.0])


# ------------------------------------------------------------------------------------------------------------- Eq. 8


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("conv", [GCNConv, SAGEConv])
def test_the_terms_add_up_to_the_logits(double_graph: Data, conv: type[nn.Module], corrected: bool) -> None:
    out = observe(trained(double_graph, conv), double_graph)
    found = decompose(out, torch.tensor([3, 80]), corrected=corrected)
    assert torch.allclose(found.logits, out.logits[[3, 80]], atol=1e-10)
    assert torch.allclose(found.contributions().sum(1), found.intra + found.inter, atol=1e-10)


def test_eq_8_has_no_residual_at_a_stationary_point(double_graph: Data) -> None:
    out = observe(trained(double_graph), double_graph)
    train = double_graph.train_mask
    solved = with_head(out, solve_head(out.hidden[train], double_graph.y[train], 4, 1e-2))
    for found in (decompose(solved, weight_decay=1e-2, corrected=False), decompose(solved)):
        assert found.unexplained < 1e-5
        assert found.correction < 1e-4
    assert (found.coefficients[torch.arange(40), double_graph.y[train]] > 0).all()  # own class: 1 - s > 0


def test_the_correction_explains_what_the_printed_equation_does_not(double_graph: Data) -> None:
    out = observe(trained(double_graph), double_graph)
    printed, corrected = decompose(out, corrected=False), decompose(out)
    assert corrected.unexplained < 0.2 * printed.unexplained
    assert corrected.effective_decay == printed.effective_decay > 0
    with pytest.raises(ValueError, match="divides by the decay"):
        decompose(out, weight_decay=0.0)
