"""Isotonic regression against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import random_graph
from graphcal.methods import Isotonic
from graphcal.methods.isotonic import interpolate
from small_outputs import model_outputs, on_val


@pytest.fixture(scope="module")
def out():
    return model_outputs(random_graph(nodes=600, train=60, val=300))


@pytest.mark.parametrize("one_vs_rest", [False, True])
def test_the_curves_are_those_of_scikit_learn(out, one_vs_rest):
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
