"""The spline, its basis and what it finds."""

from __future__ import annotations

import numpy as np

from conftest import random_graph
from graphcal.methods import Spline
from graphcal.methods.spline import natural_basis, recalibration_curve
from graphcal.metrics import ece
from small_outputs import model_outputs


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


def test_spline_lowers_the_calibration_error():
    out = model_outputs(random_graph(nodes=600, train=60, val=300))
    test = out.graph.test_mask
    after = Spline().fit(out, out.graph.val_mask)(out)[test]
    assert ece(after, out.graph.y[test]) < ece(out.logits.log_softmax(-1)[test], out.graph.y[test])
