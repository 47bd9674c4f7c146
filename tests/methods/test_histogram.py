"""Histogram binning, bin by bin."""

from __future__ import annotations

import pytest
import torch

from conftest import random_graph
from graphcal.methods import HistogramBinning
from small_outputs import with_logits


def test_histogram_by_hand():
    graph = random_graph(nodes=150)
    g = torch.Generator().manual_seed(0)
    p = torch.rand(150, generator=g).clamp(0.01, 0.99)
    graph.y = (torch.rand(150, generator=g) > p).long()
    out = with_logits(torch.stack([p.log(), (1 - p).log()], -1), graph)
    fitted = HistogramBinning(bins=4, binning="equal-width").fit(out, graph.val_mask)
    on = graph.val_mask
    for b in range(4):
        inside = on & (p > b / 4) & (p <= (b + 1) / 4)
        expected = ((graph.y[inside] == 0).sum() + p[inside].mean()) / (inside.sum() + 1)
        assert float(fitted.frequency[0, b]) == pytest.approx(float(expected), abs=1e-5)
    with pytest.raises(ValueError, match="equal-mass, equal-width"):
        HistogramBinning(binning="quantile")
