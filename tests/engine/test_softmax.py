"""Newton-CG against scipy's L-BFGS."""

from __future__ import annotations

import pytest
import torch
from scipy.optimize import minimize
from torch.nn.functional import cross_entropy

from conftest import random_graph
from graphcal.engine.softmax import fit_softmax, identity_start, odir_ridge, with_intercept
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

    found = minimize(
        objective,
        centre.numpy().ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10},
    )
    return float(found.fun), torch.where(free, torch.tensor(found.x.reshape(shape)), centre)


@pytest.mark.parametrize("kind", ["matrix", "vector", "scale only"])
def test_newton_cg_reaches_the_minimum(kind):
    z, y = on_val(model_outputs(random_graph(nodes=600, train=60, val=300)))
    x, centre, ridge = with_intercept(z), identity_start(4), odir_ridge(4, 0.3, len(z))
    free = torch.ones_like(centre, dtype=torch.bool)
    if kind != "matrix":
        free = centre.bool()
        free[-1] = kind == "vector"
    solved = fit_softmax(x, y, centre, ridge, free)
    value, reference = reference_softmax(x, y, centre, ridge, free)
    mine = float(cross_entropy(x @ solved, y) + 0.5 * (ridge * (solved - centre).square()).sum())
    assert mine <= value + 1e-10
    torch.testing.assert_close(solved, reference, atol=2e-4, rtol=1e-3)
    assert torch.equal(solved[~free], centre[~free])
