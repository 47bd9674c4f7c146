"""Newton's method against scipy's L-BFGS, and the path of penalties against all penalties."""

from __future__ import annotations

import pytest
import torch
from scipy.optimize import minimize
from torch.nn.functional import cross_entropy

from conftest import random_graph
from graphcal.methods.solvers import softmax
from graphcal.methods.solvers.node_order import kfold
from graphcal.methods.solvers.softmax import (
    fit_diagonal,
    fit_softmax,
    fit_softmax_cv,
    identity_start,
    odir_ridge,
    with_intercept,
)
from small_outputs import model_outputs, on_val


def reference_softmax(x, y, centre, ridge, free):
    """The same objective through scipy's L-BFGS and autograd."""
    shape = centre.shape

    def objective(values):
        w = torch.tensor(values.reshape(shape), requires_grad=True)
        used = torch.where(free, w, centre)
        loss = cross_entropy(x @ used, y) + 0.5 * (ridge * (used - centre).square()).sum()
        (gradient,) = torch.autograd.grad(loss, w)
        return loss.item(), gradient.numpy().ravel()

    solution = minimize(
        objective,
        centre.numpy().ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10},
    )
    return float(solution.fun), torch.where(free, torch.tensor(solution.x.reshape(shape)), centre)


def val_problem():
    z, y = on_val(model_outputs(random_graph(nodes=600, train=60, val=300)))
    return z.double(), y


def test_matrix_reaches_the_minimum():
    z, y = val_problem()
    x, centre, ridge = with_intercept(z), identity_start(4), odir_ridge(4, 0.3, len(z))
    solved = fit_softmax(x, y, centre, ridge)
    value, reference = reference_softmax(x, y, centre, ridge, torch.ones_like(centre, dtype=torch.bool))
    assert float(cross_entropy(x @ solved, y) + 0.5 * (ridge * (solved - centre).square()).sum()) <= value + 1e-10
    torch.testing.assert_close(solved, reference, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("block", [2**16, 4])  # rows of a block: 256 at least, so two blocks
def test_scale_and_shift_reach_the_minimum(bias, block, monkeypatch):
    monkeypatch.setattr(softmax, "BLOCK", block)
    z, y = val_problem()
    centre, free = identity_start(4), identity_start(4).bool()
    free[-1] = bias
    scale, shift = fit_diagonal(z, y, 0.01, bias)
    _, reference = reference_softmax(with_intercept(z), y, centre, torch.full_like(centre, 0.01), free)
    torch.testing.assert_close(scale, reference[:-1].diag(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(shift, reference[-1], atol=1e-5, rtol=1e-5)


def test_a_start_near_the_minimum_does_not_change_it():
    z, y = val_problem()
    x, centre, ridge = with_intercept(z), identity_start(4), odir_ridge(4, 0.3, len(z))
    cold = fit_softmax(x, y, centre, ridge)
    torch.testing.assert_close(fit_softmax(x, y, centre, ridge, cold + 0.01), cold, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("size", [1e4, 1e6])
@pytest.mark.parametrize("fit", [lambda x, y: fit_diagonal(x[:, :-1], y, 1e-3), lambda x, y: cv(x, y)[0]])
def test_huge_logits_give_finite_weights(size, fit):
    z, y = val_problem()
    assert fit(with_intercept(size * z), y).isfinite().all()


PENALTIES = (1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)


def cv(x, y):
    return fit_softmax_cv(x, y, PENALTIES, 5, torch.Generator().manual_seed(0))


def exhaustive_cv(x, y):
    """Every penalty in every fold from the identity, to high precision."""
    n, C = len(x), x.shape[1] - 1
    centre, loss = identity_start(C), {}
    for penalty in PENALTIES:
        loss[penalty], ridge = 0.0, odir_ridge(C, penalty, n)
        for part in kfold(n, 5, torch.Generator().manual_seed(0)):
            kept = torch.ones(n, dtype=torch.bool)
            kept[part] = False
            weight = fit_softmax(x[kept], y[kept], centre, ridge, precision=1e-15)
            loss[penalty] += float(cross_entropy(x[part].double() @ weight, y[part], reduction="sum"))
    best = min(PENALTIES, key=loss.__getitem__)
    return fit_softmax(x, y, centre, odir_ridge(C, best, n), precision=1e-15), best


@pytest.mark.slow_cases(
    "0.0-5-150-False",
    "0.3-3-400-False",
    "0.0-5-150-True",
    "1.0-3-150-False",
    "1.0-3-150-True",
    "0.1-7-150-False",
    "0.1-7-150-True",
    "0.1-7-1500-False",
    "0.1-7-1500-True",
)
@pytest.mark.parametrize("log_probs", [False, True])
@pytest.mark.parametrize(
    ("mixing", "classes", "n"), [(0.0, 5, 150), (0.1, 7, 150), (0.1, 7, 1500), (0.3, 3, 400), (1.0, 3, 150)]
)
def test_the_path_of_penalties_finds_what_all_of_them_find(mixing, classes, n, log_probs):
    g = torch.Generator().manual_seed(classes + n)
    true = 2 * torch.randn(n + 2000, classes, generator=g)
    y = torch.multinomial(true.softmax(1), 1, generator=g)[:, 0]
    z = 1.5 * (true @ (torch.eye(classes) + mixing * torch.randn(classes, classes, generator=g)))
    z += 0.4 * torch.randn(z.shape, generator=g)
    x = with_intercept(z.log_softmax(1) if log_probs else z)
    weight, penalty = cv(x[:n], y[:n])
    reference, reference_penalty = exhaustive_cv(x[:n], y[:n])
    assert penalty == reference_penalty
    nll, reference_nll = (float(cross_entropy(x[n:].double() @ one, y[n:])) for one in (weight, reference))
    assert nll == pytest.approx(reference_nll, abs=1e-5)


def test_the_path_ends_when_the_held_out_loss_has_risen(monkeypatch):
    g = torch.Generator().manual_seed(0)
    z = 2 * torch.randn(400, 5, generator=g)  # calibrated: every weaker penalty overfits more
    y, ridges = torch.multinomial(z.softmax(1), 1, generator=g)[:, 0], []
    fit = softmax.fit_softmax
    monkeypatch.setattr(
        softmax, "fit_softmax", lambda *args, **more: ridges.append(args[3][0, 1]) or fit(*args, **more)
    )
    _, penalty = cv(with_intercept(z), y)
    assert penalty >= 1e3
    assert len({float(ridge) for ridge in ridges}) < len(PENALTIES)
