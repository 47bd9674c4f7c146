"""The edge weights of DCGC, and what it asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcal.lab.baselines import DCGC
from graphcal.methods import TemperatureScaling
from small_outputs import model_outputs


@pytest.fixture(scope="module")
def out():
    return model_outputs()


def test_dcgc_weighs_edges_by_likeness_and_calibrates_the_new_logits(out):
    fitted = DCGC(calibrator="none", epochs=0).fit(out, out.graph.val_mask)  # the network says 1 for every edge
    source, target = out.graph.edge_index
    q = (10 * out.logits.softmax(-1)).softmax(-1)
    weight = 1 / ((q[source] - q[target]).norm(dim=-1) + 0.5)
    torch.testing.assert_close(fitted(out), out.model.logits(weight).log_softmax(-1), atol=1e-5, rtol=1e-5)
    trained = DCGC(calibrator="none", epochs=30).fit(out, out.graph.val_mask)
    assert not torch.allclose(trained(out), fitted(out), atol=1e-3)
    warm = DCGC(calibrator=TemperatureScaling(), epochs=30).fit(out, out.graph.val_mask)
    assert torch.equal(warm(out).argmax(-1), trained(out).argmax(-1))


def test_dcgc_says_what_it_misses(out):
    with pytest.raises(ValueError, match="only fixed logits are known"):
        DCGC().fit(replace(out, model=None), out.graph.val_mask)
    with pytest.raises(ValueError, match="choose among none, ts"):
        DCGC(calibrator="nonsense", epochs=0).fit(out, out.graph.val_mask)
