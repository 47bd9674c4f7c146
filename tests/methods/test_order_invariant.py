"""Order-invariant calibration keeps the whole order."""

from __future__ import annotations

import torch

from conftest import random_graph
from graphcal.methods import OrderInvariant, TemperatureScaling
from small_outputs import model_outputs, val_nll


def test_order_invariant_keeps_the_whole_order():
    out = model_outputs(random_graph(nodes=600, train=60, val=300))
    fitted = OrderInvariant(epochs=200, lr=0.05).fit(out, out.graph.val_mask)
    assert torch.equal(fitted(out).argsort(-1), out.logits.argsort(-1))
    assert val_nll(fitted, out) <= val_nll(TemperatureScaling().fit(out, out.graph.val_mask), out) + 0.01
