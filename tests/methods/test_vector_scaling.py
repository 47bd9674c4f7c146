"""Vector scaling with and without its bias."""

from __future__ import annotations

import pytest

from conftest import random_graph
from graphcal.methods import TemperatureScaling, VectorScaling
from small_outputs import model_outputs, val_nll


@pytest.fixture(scope="module")
def out():
    return model_outputs(random_graph(nodes=600, train=60, val=300))


def test_vector_scaling_without_bias_has_none(out):
    fitted = VectorScaling(bias=False).fit(out, out.graph.val_mask)
    assert not fitted.shift.any()
    both = VectorScaling().fit(out, out.graph.val_mask)
    assert both.shift.any()
    assert val_nll(both, out) < val_nll(fitted, out) < val_nll(TemperatureScaling().fit(out, out.graph.val_mask), out)
