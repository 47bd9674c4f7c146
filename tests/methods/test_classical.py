"""The classical calibrators against independent computations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from small_outputs import model_outputs, with_logits
from torch.nn.functional import cross_entropy, nll_loss

from conftest import random_graph
from graphcal.engine.scaling import log_odds, with_predictions
from graphcal.engine.softmax import fit_softmax, identity_start, odir, with_intercept
from graphcal.methods import (
    Dirichlet,
    EnsembleTemperatureScaling,
    HistogramBinning,
    Isotonic,
    MatrixScaling,
    OrderInvariant,
    Platt,
    Spline,
    TemperatureScaling,
    VectorScaling,
)
from graphcal.methods.isotonic import interpolate
from graphcal.methods.spline import natural_basis, recalibration_curve


@pytest.fixture(scope="module")
def out():
    return model_outputs(random_graph(nodes=600, train=60, val=300))


def on_val(out):
    on = out.graph.val_mask
    return out.logits[on].double(), out.graph.y[on]


def val_nll(fitted, out):
    on = out.graph.val_mask
    return float(nll_loss(fitted(out)[on].double(), out.graph.y[on]))


def test_temperature_is_the_brute_force_minimum(out):
    z, y = on_val(out)
    best = minimize_scalar(
        lambda s: float(cross_entropy(s * z, y)), bounds=(0.01, 20), method="bounded", options={"xatol": 1e-10}
    )
    assert float(TemperatureScaling().fit(out, out.graph.val_mask).scale) == pytest.approx(best.x, rel=1e-4)


def test_accumulated_gradients_do_not_find_the_temperature(out):
    exact = TemperatureScaling().fit(out, out.graph.val_mask)
    slip = TemperatureScaling(solver="accumulated").fit(out, out.graph.val_mask)
    assert val_nll(slip, out) > val_nll(exact, out) + 1e-3
    with pytest.raises(ValueError, match="exact, accumulated"):
        TemperatureScaling(solver="lbfgs")


def test_a_temperature_fitted_under_dropout_is_that_of_the_noisy_logits(out):
    """Noise that costs accuracy raises the temperature; it is the minimum of the noisy NLL, and the clean logits get it."""

    def noisy_logits(generator):
        return out.logits + 2 * torch.randn(out.logits.shape, generator=generator)

    noisy = replace(out, noisy_logits=noisy_logits)
    clean = TemperatureScaling().fit(noisy, out.graph.val_mask)
    fitted = TemperatureScaling(solver="base-dropout").fit(noisy, out.graph.val_mask)
    assert fitted.temperature > clean.temperature
    generator = torch.Generator().manual_seed(0)
    drawn = torch.cat([noisy_logits(generator)[out.graph.val_mask] for _ in range(20)])
    y = out.graph.y[out.graph.val_mask].repeat(20)
    losses = [float(cross_entropy(scale * fitted.scale * drawn, y)) for scale in (0.98, 1.0, 1.02)]
    assert losses[1] < min(losses[0], losses[2])
    assert torch.allclose(fitted(noisy), (fitted.scale * out.logits).log_softmax(-1), atol=1e-5)
    with pytest.raises(ValueError, match="only fixed logits are known"):
        TemperatureScaling(solver="base-dropout").fit(replace(out, noisy_logits=None), out.graph.val_mask)


def test_a_descent_that_stops_is_on_the_way_from_one_to_the_temperature_under_dropout(out):
    noisy = replace(out, noisy_logits=lambda generator: 0.5 * out.logits)  # "noise" that only halves the logits
    on, y = out.graph.val_mask, out.graph.y[out.graph.val_mask]

    def temperature(solver):
        return TemperatureScaling(solver=solver).fit(noisy, on).temperature

    halved = 0.5 * out.logits[on]
    expected = (halved.softmax(-1) * halved).sum(-1)
    slope = float((halved.gather(1, y[:, None])[:, 0] - expected).mean())  # d NLL / d T at T = 1
    assert temperature("base-dropout-1") == pytest.approx(1 - 0.01 * slope, rel=1e-5)
    end = temperature("base-dropout")
    gaps = [abs(temperature(f"base-dropout-{steps}") - end) for steps in (1, 50, 200, 20_000)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[2] > 1e-2 > 1e-3 > gaps[3]
    for wrong in ("base-dropout-0", "base-dropout-", "base-dropout-2.5", "exact-200"):
        with pytest.raises(ValueError, match="N steps of gradient descent"):
            TemperatureScaling(solver=wrong)


def test_cagcns_code_is_its_closure_on_one_draw_of_the_noise(out):
    drawn = out.logits + torch.randn(out.logits.shape, generator=torch.Generator().manual_seed(1))
    noisy = replace(out, noisy_logits=lambda generator: drawn)
    fitted = TemperatureScaling(solver="cagcn").fit(noisy, out.graph.val_mask)
    on_the_draw = TemperatureScaling(solver="accumulated").fit(replace(out, logits=drawn), out.graph.val_mask)
    assert float(fitted.scale) == float(on_the_draw.scale)
    assert float(fitted.scale) != float(TemperatureScaling(solver="accumulated").fit(out, out.graph.val_mask).scale)


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
def test_newton_cg_reaches_the_minimum(out, kind):
    z, y = on_val(out)
    x, centre, ridge = with_intercept(z), identity_start(4), odir(4, 0.3, len(z))
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


def test_vector_scaling_without_bias_has_none(out):
    fitted = VectorScaling(bias=False).fit(out, out.graph.val_mask)
    assert not fitted.shift.any()
    both = VectorScaling().fit(out, out.graph.val_mask)
    assert both.shift.any()
    assert val_nll(both, out) < val_nll(fitted, out) < val_nll(TemperatureScaling().fit(out, out.graph.val_mask), out)


def test_matrix_scaling_chooses_a_strong_penalty_when_there_is_nothing_to_mix():
    g = torch.Generator().manual_seed(0)
    graph = random_graph(nodes=400, train=20, val=150)
    logits = torch.randn(400, 4, generator=g)
    graph.y = torch.multinomial((2 * logits).softmax(-1), 1, generator=g).squeeze(
        -1
    )  # a plain temperature is the truth
    plain = MatrixScaling().fit(with_logits(logits, graph), graph.val_mask)
    mixed = with_logits(
        logits @ torch.linalg.qr(torch.randn(4, 4, generator=g)).Q, graph
    )  # the truth needs a full matrix
    full = MatrixScaling().fit(mixed, graph.val_mask)
    assert full.penalty < plain.penalty
    off = plain.matrix[~torch.eye(4, dtype=torch.bool)]
    assert off.abs().max() < 0.1 * plain.matrix.diag().min()


def test_the_matrix_of_the_published_rows_is_another_one(out):
    exact, cagcn = (MatrixScaling(solver=s).fit(out, out.graph.val_mask) for s in ("exact", "cagcn"))
    assert not torch.allclose(exact.matrix, cagcn.matrix, atol=0.05)
    with pytest.raises(ValueError, match="exact, cagcn"):
        MatrixScaling(solver="adam")


def test_dirichlet_is_matrix_scaling_of_log_probabilities(out):
    shifted = with_logits(out.logits.log_softmax(-1), out.graph)
    direct = MatrixScaling().fit(shifted, out.graph.val_mask)
    fitted = Dirichlet().fit(out, out.graph.val_mask)
    torch.testing.assert_close(fitted(out), direct(shifted), atol=1e-4, rtol=1e-4)


def test_log_odds_are_exact_where_the_softmax_rounds_to_one():
    z = torch.tensor([[40.0, 0.0, -3.0], [1.0, 2.0, 0.5]])
    p = z.double().softmax(-1)
    expected = torch.log(p) - torch.log(
        torch.stack([p[:, [1, 2]].sum(-1), p[:, [0, 2]].sum(-1), p[:, [0, 1]].sum(-1)], -1)
    )
    torch.testing.assert_close(log_odds(z).double(), expected, rtol=1e-5, atol=1e-5)


def test_platt_for_two_classes_is_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    graph = random_graph(nodes=400, classes=2, train=20, val=300)
    g = torch.Generator().manual_seed(1)
    logits = torch.randn(400, 2, generator=g)
    graph.y = (torch.rand(400, generator=g) < (2 * (logits[:, 1] - logits[:, 0]) + 0.5).sigmoid()).long()
    out = with_logits(logits, graph)
    fitted = Platt().fit(out, graph.val_mask)
    odds = (logits[:, 1] - logits[:, 0])[graph.val_mask, None].numpy()
    reference = LogisticRegression(C=np.inf, tol=1e-10).fit(odds, graph.y[graph.val_mask].numpy())
    assert float(fitted.slope[1]) == pytest.approx(reference.coef_[0, 0], rel=0.05)  # Platt's targets are smoothed
    assert float(fitted.bias[1]) == pytest.approx(reference.intercept_[0], abs=0.05)


def test_ensemble_weights_are_the_best_of_the_simplex(out):
    fitted = EnsembleTemperatureScaling().fit(out, out.graph.val_mask)
    z, y = on_val(out)
    s = float(fitted.scale)
    parts = torch.stack([(s * z).softmax(-1), z.softmax(-1), torch.full_like(z, 0.25)], -1)[torch.arange(len(y)), y]
    grid = [(a / 50, b / 50, (50 - a - b) / 50) for a in range(51) for b in range(51 - a)]
    best = min(float(-(parts @ torch.tensor(w, dtype=torch.double)).log().mean()) for w in grid)
    assert val_nll(fitted, out) <= best + 1e-6
    assert float(fitted.weights.sum()) == pytest.approx(1.0, abs=1e-6)
    assert (fitted.weights >= 0).all()


def test_ensemble_mixes_when_the_labels_are_noisy():
    g = torch.Generator().manual_seed(0)
    graph = random_graph(nodes=800, train=20, val=600)
    logits = 6 * torch.randn(800, 4, generator=g)
    noisy = torch.where(torch.rand(800, generator=g) < 0.3, torch.randint(4, (800,), generator=g), logits.argmax(-1))
    graph.y = noisy
    fitted = EnsembleTemperatureScaling().fit(with_logits(logits, graph), graph.val_mask)
    assert 0.2 < float(fitted.weights[2]) < 0.4  # the share of labels that are drawn blindly


@pytest.mark.parametrize("one_vs_rest", [False, True])
def test_isotonic_steps_are_those_of_scikit_learn(out, one_vs_rest):
    from sklearn.isotonic import IsotonicRegression

    fitted = Isotonic(one_vs_rest=one_vs_rest).fit(out, out.graph.val_mask)
    z, y = on_val(out)
    p, truth = z.softmax(-1).numpy(), np.eye(4)[y.numpy()]
    everyone = out.logits.double().softmax(-1).numpy()
    for c in range(4) if one_vs_rest else [0]:
        curve = IsotonicRegression(out_of_bounds="clip")
        curve.fit(*((p[:, c], truth[:, c]) if one_vs_rest else (p.ravel(), truth.ravel())))
        k = c if one_vs_rest else 0
        mine = interpolate(torch.from_numpy(everyone[:, c]), fitted.x[k].double(), fitted.y[k].double())
        close = np.isclose(mine.numpy(), curve.predict(everyone[:, c]), atol=1e-3)
        assert close.mean() > 0.97  # knots are kept in single precision: a value on an edge may fall to either side


def test_histogram_by_hand():
    graph = random_graph(nodes=150)
    g = torch.Generator().manual_seed(0)
    p = torch.rand(150, generator=g).clamp(0.01, 0.99)
    graph.y = (torch.rand(150, generator=g) > p).long()
    out = with_logits(torch.stack([p.log(), (1 - p).log()], -1), graph)
    fitted = HistogramBinning(bins=4, binning="equal-width").fit(out, graph.val_mask)
    on = graph.val_mask
    for b in range(4):
        inside = on & (p > b / 4) & (p <= (b + 1) / 4)
        expected = ((graph.y[inside] == 0).sum() + p[inside].mean()) / (inside.sum() + 1)
        assert float(fitted.frequency[0, b]) == pytest.approx(float(expected), abs=1e-5)
    with pytest.raises(ValueError, match="equal-mass, equal-width"):
        HistogramBinning(binning="quantile")


def test_natural_splines_are_straight_outside_and_have_the_right_slope():
    knots = np.linspace(0, 1, 7)
    t = np.linspace(-0.5, 1.5, 401)
    value, slope = natural_basis(t, knots)
    numeric = np.gradient(value, t, axis=0)
    assert np.abs(numeric - slope)[2:-2].max() < 0.05
    outside = (t < -0.02) | (t > 1.02)
    assert np.abs(np.gradient(slope, t, axis=0)[outside]).max() < 1e-8


def test_spline_finds_the_accuracy_behind_the_confidence():
    rng = np.random.default_rng(0)
    conf = rng.uniform(0.3, 1.0, 20000)
    truth = conf**2  # over-confident by a smooth amount
    x, y = recalibration_curve(conf, (rng.uniform(size=20000) < truth).astype(float), 7)
    middle = (x > 0.4) & (x < 0.95)
    assert np.abs(y - x**2)[middle].max() < 0.05
    assert np.abs(x - x**2)[middle].max() > 0.2


def test_spline_lowers_the_calibration_error(out):
    from graphcal.metrics import ece

    test = out.graph.test_mask
    after = Spline().fit(out, out.graph.val_mask)(out)[test]
    assert ece(after, out.graph.y[test]) < ece(out.logits.log_softmax(-1)[test], out.graph.y[test])


def test_order_invariant_keeps_the_whole_order(out):
    fitted = OrderInvariant(epochs=200, lr=0.05).fit(out, out.graph.val_mask)
    assert torch.equal(fitted(out).argsort(-1), out.logits.argsort(-1))
    assert val_nll(fitted, out) <= val_nll(TemperatureScaling().fit(out, out.graph.val_mask), out) + 0.01


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=6), st.floats(2**-10, 2**10, width=32))
def test_a_positive_scale_never_moves_a_prediction(logits, scale):
    z = torch.tensor([logits])
    kept = with_predictions((scale * z).log_softmax(-1), z.argmax(-1))
    assert kept.argmax(-1).equal(z.argmax(-1))
    torch.testing.assert_close(kept, (scale * z).log_softmax(-1))
