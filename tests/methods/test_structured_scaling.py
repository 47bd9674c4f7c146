"""Structured matrix scaling against its formula minimised by SciPy, and against the authors' package where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax

from conftest import random_graph
from graphcal.methods import StructuredMatrixScaling
from graphcal.methods.temperature import fit_scale
from small_outputs import model_outputs, with_logits


@pytest.fixture(scope="module")
def out():
    return model_outputs(random_graph(nodes=600, train=60, val=200))


def test_it_is_the_minimum_of_the_penalised_nll(out):
    on = out.graph.val_mask
    z, y = out.logits[on].double(), out.graph.y[on].numpy()
    n, C = z.shape
    probs = (fit_scale(z, out.graph.y[on]) * z).softmax(-1).numpy()
    x = np.log(n / (n + 1) * probs + 1 / (n + 1) / C)
    off = ~np.eye(C, dtype=bool)

    def objective(parameters):
        delta, b = parameters[: C * C].reshape(C, C), parameters[C * C :]
        nll = -log_softmax(x + x @ delta + b, axis=1)[np.arange(n), y].mean()
        diagonal = (b**2).sum() + (np.diag(delta) ** 2).sum()
        return nll + C / n * diagonal + C * (C - 1) / n * (delta[off] ** 2).sum()

    best = minimize(objective, np.zeros(C * C + C), method="BFGS", options={"gtol": 1e-8}).x
    fitted = StructuredMatrixScaling().fit(out, on)
    np.testing.assert_allclose(fitted.matrix.numpy(), np.eye(C) + best[: C * C].reshape(C, C), atol=1e-4)
    np.testing.assert_allclose(fitted.shift.numpy(), best[C * C :], atol=1e-4)


def test_it_equals_the_authors_package(out):
    calibrators = pytest.importorskip("probmetrics.calibrators")
    on = out.graph.val_mask.numpy()
    probs = out.logits.softmax(-1).numpy()
    theirs = calibrators.SMSCalibrator()
    theirs.fit(probs[on], out.graph.y.numpy()[on])
    ours = StructuredMatrixScaling().fit(out, out.graph.val_mask)(out).exp()
    np.testing.assert_allclose(ours.numpy(), theirs.predict_proba(probs), atol=2e-3)  # they stop BFGS early


def test_a_sure_and_wrong_model_keeps_finite_loss():
    graph = random_graph(nodes=300, train=30, val=150)
    logits = torch.zeros(300, 4)
    logits[torch.arange(300), (graph.y + 1) % 4] = 1e4
    log_probs = StructuredMatrixScaling().fit(with_logits(logits, graph), graph.val_mask)(with_logits(logits, graph))
    assert torch.isfinite(log_probs).all()
