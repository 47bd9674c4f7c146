"""Theorem 3.1: one step of training reads as a temperature, and where Adam does not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import double_graph, trained
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

from graphcal.lab.theory import one_step, stepped_logits, theorem_3_1


@pytest.fixture
def graph() -> Data:
    return double_graph()


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
def test_one_sgd_step_of_a_whole_model_obeys_the_theorem(graph: Data, conv: type[nn.Module], count: int) -> None:
    nodes = graph.train_mask.nonzero().flatten()[:count]
    step = one_step(trained(graph, conv), graph, nodes, lr=0.1, weight_decay=0.05)
    assert step.gap < 1e-12
    assert step.shrink == pytest.approx(step.shrink_predicted, rel=1e-6)


def test_the_mean_loss_form_contains_the_single_node_theorem() -> None:
    g = torch.Generator().manual_seed(3)
    weight, h, h_next = (torch.randn(*shape, generator=g, dtype=torch.double) for shape in ((4, 6), (1, 6), (1, 6)))
    batch = stepped_logits(weight, h, h_next, torch.tensor([2]), 0.1, 0.01).softmax(-1)[0]
    assert torch.allclose(batch, theorem_3_1(weight, h[0], h_next[0], 2, 0.1, 0.01), atol=1e-14)


def test_adam_with_l2_does_not_shrink_the_head_as_the_theorem_says(graph: Data) -> None:
    model, nodes = trained(graph), graph.train_mask.nonzero().flatten()
    adam = one_step(model, graph, nodes, optimizer="adam", warmup=20)
    decoupled = one_step(model, graph, nodes, optimizer="adamw", warmup=20)
    assert adam.gap > 1e-5
    assert abs(adam.shrink / adam.shrink_predicted - 1) > 0.5
    assert decoupled.shrink == pytest.approx(decoupled.shrink_predicted, rel=1e-6)


def test_one_step_leaves_the_model_alone_and_names_its_optimisers(graph: Data) -> None:
    model = trained(graph, epochs=1)
    before = [p.clone() for p in model.parameters()]
    one_step(model, graph, torch.tensor(0), warmup=2)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    with pytest.raises(ValueError, match="'rmsprop' is not one of sgd, adam, adamw"):
        one_step(model, graph, torch.tensor(0), optimizer="rmsprop")
