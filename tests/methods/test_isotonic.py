"""Isotonic regression against scikit-learn's."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from sklearn.isotonic import IsotonicRegression
from torch_geometric.data import Data

from conftest import random_graph
from graphcal import saving
from graphcal.core import Outputs
from graphcal.methods import Isotonic, KeptIsotonic
from graphcal.methods.isotonic import MonotoneCurves, interpolate
from small_outputs import model_outputs, on_val


@pytest.fixture(scope="module")
def out():
    return model_outputs(random_graph(nodes=600, train=60, val=300))


def weighted_outputs(dtype: torch.dtype = torch.double, digits: int = 2, count: int = 3000) -> Outputs:
    """Two classes, 5 % of rows positive, log-odds inflated by a class weight of 20 and rounded, so that rows tie."""
    g = torch.Generator().manual_seed(0)
    odds = 1.5 * torch.randn(count, generator=g, dtype=torch.double) - 3.8
    y = (torch.rand(count, generator=g) < odds.sigmoid()).long()
    inflated = (odds + np.log(20)).round(decimals=digits)
    val = torch.arange(count) < count // 2
    val[inflated.topk(5).indices] = val[(-inflated).topk(5).indices] = False  # others lie outside the fitted range
    logits = torch.stack([-inflated / 2, inflated / 2], -1).to(dtype)
    return Outputs(logits, Data(y=y, val_mask=val, num_nodes=count))


@pytest.mark.parametrize("one_vs_rest", [False, True])
def test_the_curves_are_those_of_scikit_learn(out, one_vs_rest):
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


@pytest.mark.parametrize("digits", [1, 2, 8])
@pytest.mark.parametrize("dtype", [torch.double, torch.float])
def test_two_classes_are_isotonic_regression_of_the_positive_class(dtype, digits):
    out = weighted_outputs(dtype, digits)
    on, y = out.graph.val_mask, out.graph.y
    p = out.logits.double().softmax(-1)[:, 1].numpy()
    reference = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p[on], y[on].numpy())
    expected = reference.predict(p)
    assert (p[~on] < p[on].min()).any()
    assert (p[~on] > p[on].max()).any()
    for recipe in (Isotonic(), Isotonic(one_vs_rest=True)):
        probs = recipe.fit(out, on)(out).double().exp()
        np.testing.assert_allclose(probs[:, 1].numpy(), expected, atol=1e-6)
        np.testing.assert_allclose(probs[:, 0].numpy(), 1 - expected, atol=1e-6)
    assert abs(float(probs[on, 1].mean() - y[on].double().mean())) < 1e-6  # a class weight is undone


def test_two_classes_interpolate_between_fitted_rows_and_are_constant_outside():
    p = torch.tensor([0.3, 0.7, 0.1, 0.4, 0.9], dtype=torch.double)
    graph = Data(y=torch.tensor([0, 1, -1, -1, -1]), val_mask=torch.arange(5) < 2, num_nodes=5)
    out = Outputs(torch.stack([1 - p, p], -1).log(), graph)
    probs = Isotonic().fit(out, graph.val_mask)(out).exp()[:, 1]
    assert probs.tolist() == pytest.approx([0, 1, 0, 0.25, 1], abs=1e-6)


def test_two_classes_keep_the_order_of_rows_and_stay_positive():
    out = weighted_outputs(digits=8)
    out.graph.y = (out.logits[:, 1] > 1).long()  # separable: the frequencies are 0 and 1
    log_probs = Isotonic().fit(out, out.graph.val_mask)(out)
    assert torch.isfinite(log_probs).all()
    order = out.logits[:, 1].argsort()
    odds = log_probs[order, 1] - log_probs[order, 0]
    assert (odds.diff() >= 0).all()
    low = odds[: len(odds) // 2]
    assert len(low.unique()) == len(
        out.logits[order[: len(low)], 1].unique()
    )  # on one step, in the order of the scores


def test_the_form_that_keeps_predictions_has_one_curve_for_both_classes():
    out = weighted_outputs()
    on, y = out.graph.val_mask, out.graph.y
    log_probs = KeptIsotonic().fit(out, on)(out)
    p = out.logits.softmax(-1).numpy()
    curve = IsotonicRegression(out_of_bounds="clip").fit(p[on].ravel(), np.eye(2)[y[on]].ravel())
    steps = curve.predict(p.ravel()).reshape(p.shape) + 1e-3 * p
    np.testing.assert_allclose(log_probs.exp().numpy(), steps / steps.sum(1, keepdims=True), atol=1e-4)
    assert torch.equal(log_probs.argmax(-1), out.logits.argmax(-1))
    assert log_probs[on, 1].exp().mean() > 3 * y[on].double().mean()  # which is why it is not `isotonic`


def test_with_more_classes_both_forms_are_one(out):
    on = out.graph.val_mask
    assert torch.equal(Isotonic().fit(out, on)(out), KeptIsotonic().fit(out, on)(out))


def test_a_two_class_file_of_an_older_version_keeps_predictions(tmp_path):
    """Before `isotonic` meant the positive class, its files held one curve for both classes."""
    x, y = torch.tensor([[0.2, 0.4, 0.6, 0.8]]), torch.tensor([[0.1, 0.3, 0.7, 0.9]])
    about = {"fitting_nodes": 4, "nodes": 4, "edges": None, "undirected": None, "fingerprint": "", "class_names": None}
    older = MonotoneCurves(x=x, y=y, one_vs_rest=False, num_classes=2, fitted_on=about)
    path = saving.save(older, tmp_path / "older.safetensors")
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["graphcal"])["class"] == "MonotoneCurves"
    logits = torch.tensor([0.3, 0.7]).log()[None]
    probs = saving.restore(path)(Outputs(logits, Data(num_nodes=1))).exp()[0]
    a, b = 0.2 + 1e-3 * 0.3, 0.8 + 1e-3 * 0.7
    torch.testing.assert_close(probs, torch.tensor([a / (a + b), b / (a + b)]))
