"""Temperature scaling against a brute-force search."""

from __future__ import annotations

import pytest
from scipy.optimize import minimize_scalar
from torch.nn.functional import cross_entropy

from conftest import random_graph
from graphcal.methods import TemperatureScaling
from small_outputs import model_outputs, on_val


@pytest.fixture(scope="module")
def out():
    return model_outputs(random_graph(nodes=600, train=60, val=300))


def test_temperature_is_the_brute_force_minimum(out):
    z, y = on_val(out)
    best = minimize_scalar(
        lambda s: float(cross_entropy(s * z, y)), bounds=(0.01, 20), method="bounded", options={"xatol": 1e-10}
    )
    assert float(TemperatureScaling().fit(out, out.graph.val_mask).scale) == pytest.approx(best.x, rel=1e-4)


def test_there_is_nothing_to_set(out):
    assert TemperatureScaling() == TemperatureScaling()
    with pytest.raises(TypeError):
        TemperatureScaling(solver="lbfgs")
