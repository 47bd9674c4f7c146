"""Ratio-binned scaling: full bins and empty ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from conftest import random_graph
from graphcal.graphs import structure
from graphcal.methods import RatioBinnedScaling, TemperatureScaling
from small_outputs import model_outputs


@pytest.mark.slow
def test_ratio_bins_take_their_own_temperature_and_empty_ones_the_common_one():
    graph = random_graph(nodes=800, train=20, val=600)
    out = model_outputs(graph)
    share = (out.logits.argmax(-1)[:, None] == torch.arange(4)).float()
    agree = structure(graph).neighbour_mean(share).gather(1, out.pred[:, None]).squeeze(-1)
    sharp = torch.where(agree[:, None] > 0.8, out.logits / 4, out.logits * 4)  # order kept, so agreement too
    mixed = replace(out, logits=sharp)
    fitted = RatioBinnedScaling(bins=5, shrink=1.0).fit(mixed, graph.val_mask)
    assert float(fitted.scales[4]) > 3 * float(fitted.scales[1])
    common = float(TemperatureScaling().fit(mixed, graph.val_mask).scale)
    alone = RatioBinnedScaling(bins=1000).fit(mixed, graph.val_mask)
    assert float(alone.scales[1]) == pytest.approx(common, rel=1e-5)  # a share in (0.001, 0.002] does not occur
