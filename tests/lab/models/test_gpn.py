"""GPN: its flows are densities, its loss is the expected one, its evidence falls far from the data."""

import pytest
import torch
from pyg_weights import model_of

from graphcal.lab.models import GPN
from graphcal.lab.models.gpn import RadialFlows
from graphcal.lab.training import AULS, Training, train

SHORT = Training(hidden_channels=8, epochs=20, patience=None, init="linear")


def test_a_flow_is_a_density():
    """In one dimension it integrates to one."""
    flows = RadialFlows(1, 2, 4, [torch.Generator().manual_seed(0)])
    x = torch.linspace(-30, 30, 20001)
    density = flows(x[None, :, None]).exp()[0].detach()  # (2, n)
    assert torch.trapezoid(density, x).tolist() == pytest.approx([1, 1], abs=1e-3)


def test_the_loss_is_the_expected_cross_entropy_minus_the_entropy():
    _, ours = model_of(GPN(entropy=0.3))
    alpha, y = torch.tensor([[[2.0, 1.0, 4.0, 1.5], [1.0, 3.0, 1.0, 1.0]]]), torch.tensor([2, 1])
    law = torch.distributions.Dirichlet(alpha.double()[0])
    draws = law.sample((200_000,))  # (S, 2, 4)
    expected = -draws.log()[:, torch.arange(2), y].mean(0) - 0.3 * law.entropy()
    weights = torch.tensor([[0.5, 0.5]])
    assert float(ours.loss(alpha.log(), y, weights)) == pytest.approx(float(expected.sum()), abs=0.02)


def test_the_prior_is_that_of_the_training_classes():
    _, ours = model_of(GPN())
    ours.on_train_start(torch.tensor([0, 1, 1, 3]), torch.full((1, 4), 0.25))
    assert ours.log_prior[0, :, 0].exp().tolist() == pytest.approx([0.25, 0.5, 0, 0.25], abs=1e-6)


def test_it_keeps_its_own_loss(graph):
    with pytest.raises(ValueError, match=r"has a loss of its own: AULS\(epsilon=-0.5, gamma=0.5\) cannot replace it"):
        train(graph, "gpn", Training(loss=AULS()), seeds=1)


def test_a_node_far_from_the_data_has_less_evidence(graph):
    run = train(graph, "gpn", SHORT, seeds=1)[0]
    with torch.no_grad():
        logits_far_away = run.model(graph.x * 30, graph.edge_index)
    far, near = ((logits.exp() - 1).sum(-1) for logits in (logits_far_away, run.outputs.logits))  # alpha = 1 + evidence
    assert far.median() < 0.1 * near.median()
