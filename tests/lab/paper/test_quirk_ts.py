"""CaGCN's temperatures: where its two slips lead."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from conftest import random_graph
from graphcal.lab.paper.quirks.ts import AccumulatedTS, BaseDropoutTS
from graphcal.methods import TemperatureScaling
from small_outputs import Says, model_outputs, val_nll


@pytest.fixture(scope="module")
def out():
    return model_outputs(random_graph(nodes=600, train=60, val=300))


@dataclass(frozen=True, eq=False)
class Noisy:
    """A model whose dropout adds Gaussian noise to its logits."""

    fixed: Tensor

    def logits(self, edge_weight=None, dropout=None):
        return self.fixed + 2 * torch.randn(self.fixed.shape, generator=dropout)


def test_accumulated_gradients_do_not_find_the_temperature(out):
    exact = TemperatureScaling().fit(out, out.graph.val_mask)
    slip = AccumulatedTS().fit(out, out.graph.val_mask)
    assert val_nll(slip, out) > val_nll(exact, out) + 1e-3


def test_a_temperature_fitted_under_dropout_is_that_of_the_noisy_logits(out):
    """Noise that costs accuracy raises the temperature; it is the minimum of the noisy NLL, and the clean logits get it."""

    noisy = replace(out, model=Noisy(out.logits))
    clean = TemperatureScaling().fit(noisy, out.graph.val_mask)
    fitted = BaseDropoutTS().fit(noisy, out.graph.val_mask)
    assert fitted.temperature > clean.temperature
    generator = torch.Generator().manual_seed(0)
    drawn = torch.cat([noisy.model.logits(dropout=generator)[out.graph.val_mask] for _ in range(20)])
    y = out.graph.y[out.graph.val_mask].repeat(20)
    losses = [float(cross_entropy(scale * fitted.scale * drawn, y)) for scale in (0.98, 1.0, 1.02)]
    assert losses[1] < min(losses[0], losses[2])
    assert torch.allclose(fitted(noisy), (fitted.scale * out.logits).log_softmax(-1), atol=1e-5)
    with pytest.raises(ValueError, match="only fixed logits are known"):
        BaseDropoutTS().fit(replace(out, model=None), out.graph.val_mask)


@pytest.mark.slow
def test_a_descent_that_stops_is_on_the_way_from_one_to_the_temperature_under_dropout(out):
    noisy = replace(out, model=Says(out.logits, 0.5 * out.logits))  # "noise" that only halves the logits
    on, y = out.graph.val_mask, out.graph.y[out.graph.val_mask]

    def temperature(steps=None):
        return BaseDropoutTS(steps).fit(noisy, on).temperature

    halved = 0.5 * out.logits[on]
    expected = (halved.softmax(-1) * halved).sum(-1)
    slope = float((halved.gather(1, y[:, None])[:, 0] - expected).mean())  # d NLL / d T at T = 1
    assert temperature(1) == pytest.approx(1 - 0.01 * slope, rel=1e-5)
    end = temperature()
    gaps = [abs(temperature(steps) - end) for steps in (1, 50, 200, 20_000)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[2] > 1e-2 > 1e-3 > gaps[3]
    with pytest.raises(ValueError, match="steps must be at least 1"):
        BaseDropoutTS(steps=0)


def test_a_negative_temperature_reverses_the_order(out):
    fitted = AccumulatedTS().fit(out, out.graph.val_mask)
    fitted.scale.fill_(-0.5)
    assert torch.equal(fitted(out).argmax(-1), out.logits.argmin(-1))
