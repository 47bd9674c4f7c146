"""The convex fits: minimum, leave-one-out, targets."""

from __future__ import annotations

import pytest
import torch
from scipy.optimize import minimize
from torch.nn.functional import cross_entropy, one_hot

from conftest import random_graph
from graphcal.methods.solvers.linear import LinearFit, fit_linear, loo_logits, mean_nll, platt_targets, soft_nll
from small_outputs import linear_outputs


@pytest.fixture
def graph():
    return random_graph(nodes=500, train=20, val=240)


@pytest.fixture
def problem(graph):
    """base, terms and labels of a fit with three columns of very different size."""
    out = linear_outputs(graph, noise=1.5)
    z, y = out.logits[graph.val_mask], graph.y[graph.val_mask]
    t = out.final.gram.T[out.pred[graph.val_mask]]
    return 0.1 * z, torch.stack([z, 100 * t, 1e-4 * z.flip(-1)], -1), y


def test_the_minimum_is_that_of_another_solver(problem):
    base, terms, y = problem
    ridge, start = (
        torch.tensor([0.01, 1.0, 1e-9], dtype=torch.double),
        torch.tensor([1.0, 0.0, 0.0], dtype=torch.double),
    )
    theta = fit_linear(base, terms, y, ridge, start)

    def objective(values):
        t = torch.tensor(values / size, dtype=torch.double)
        return float(cross_entropy(base + terms @ t, y) + 0.5 * (ridge * (t - start).square()).sum())

    size = terms.square().mean((0, 1)).sqrt().numpy()  # for the other solver's sake
    reference = minimize(objective, (start.numpy() * size), method="BFGS", options={"gtol": 1e-9})
    assert objective(theta.numpy() * size) <= reference.fun + 1e-12
    torch.testing.assert_close(theta, torch.tensor(reference.x / size), atol=1e-5, rtol=1e-3)


def test_gradient_and_hessian_are_those_of_autograd(problem):
    base, terms, y = problem
    fit = LinearFit(base, terms, one_hot(y, 4).double(), torch.zeros(3))
    theta = torch.tensor([0.3, -0.2, 0.1], dtype=torch.double)

    def nll(t):
        return fit.at(t).nll

    state = fit.at(theta)
    torch.testing.assert_close(state.gradient, torch.autograd.functional.jacobian(nll, theta), atol=1e-12, rtol=1e-10)
    torch.testing.assert_close(state.hessian, torch.autograd.functional.hessian(nll, theta), atol=1e-12, rtol=1e-10)


def test_two_equal_columns_and_a_column_of_nothing_do_not_run_away(problem):
    base, terms, y = problem
    twice = torch.stack(
        [terms[:, :, 0], terms[:, :, 0], torch.ones_like(base)], -1
    )  # softmax does not see the last one
    theta = fit_linear(base, twice, y, start=torch.tensor([0.0, 0.0, 7.0]))
    once = fit_linear(base, terms[:, :, :1], y)
    assert float(theta[:2].sum()) == pytest.approx(float(once), rel=1e-6)
    assert float(theta[0]) == pytest.approx(float(theta[1]), rel=1e-6)
    assert float(theta[2]) == 7.0


def test_leave_one_out_is_close_to_leaving_one_out(graph):
    out = linear_outputs(graph)
    index = graph.val_mask.nonzero().flatten()[:60]
    z, y = out.logits[index], graph.y[index]
    terms = torch.stack([z, out.final.gram.T[out.pred[index]]], -1)
    base, ridge = torch.zeros_like(z), torch.tensor([0.01, 0.02], dtype=torch.double)
    theta = fit_linear(base, terms, y, ridge)
    quick = loo_logits(base, terms, one_hot(y, 4).double(), theta, ridge)
    literal = torch.empty_like(z)
    for i in range(len(index)):
        rest = torch.arange(len(index)) != i
        # the ridge counts against a mean over n nodes, so n - 1 nodes carry n / (n - 1) of it
        again = fit_linear(base[rest], terms[rest], y[rest], ridge * 60 / 59)
        literal[i] = terms[i] @ again
    seen = cross_entropy(terms @ theta, y)
    optimism = cross_entropy(literal, y) - seen
    assert cross_entropy(quick, y) - seen == pytest.approx(float(optimism), rel=0.1)


Z = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.double)


def test_both_are_cross_entropies():
    y, target = Z.flip(1).argmax(-1), Z.flip(0).softmax(-1)
    assert float(mean_nll(Z, y)) == pytest.approx(float(cross_entropy(Z, y)))
    assert float(soft_nll(Z, target)) == pytest.approx(float(cross_entropy(Z, target)))


def test_labels_are_smoothed_only_where_all_are_right():
    right, wrong = Z.argmax(-1), Z.argmin(-1)
    smooth = platt_targets(right, Z)
    torch.testing.assert_close(smooth.amax(-1), torch.full((8,), 1 - 1 / 10, dtype=torch.double))
    torch.testing.assert_close(smooth.sum(-1), torch.ones(8, dtype=torch.double))
    assert torch.equal(platt_targets(wrong, Z), one_hot(wrong, 3).double())


def test_each_column_is_smoothed_by_its_own_nodes():
    y = torch.where(torch.arange(8) < 3, Z.argmax(-1), Z.argmin(-1))
    columns = torch.stack([torch.arange(8) < 3, torch.arange(8) >= 3], -1).double()[:, None, :] * Z[:, :, None]
    smooth = platt_targets(y, Z, columns)
    torch.testing.assert_close(smooth[:3].amax(-1), torch.full((3,), 1 - 1 / 5, dtype=torch.double))
    assert torch.equal(smooth[3:], one_hot(y, 3).double()[3:])
