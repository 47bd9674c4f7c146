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


def test_a_fitted_node_on_the_edge_of_a_bin_gets_the_bin_it_was_counted_in():
    """Edges of equal mass are probabilities of fitted nodes: rounding must not move these to the next bin."""
    graph = random_graph(nodes=400, classes=3)
    graph.val_mask = ~graph.train_mask
    graph.test_mask = torch.zeros_like(graph.val_mask)
    number = int(graph.val_mask.sum()) // 4 * 4 + 1  # quantiles of 4 k + 1 nodes are nodes
    graph.val_mask[graph.val_mask.nonzero().flatten()[number - 4 :]] = False
    out = with_logits(torch.randn(400, 3, generator=torch.Generator().manual_seed(0)), graph)
    on = graph.val_mask
    fitted = HistogramBinning(bins=4).fit(out, on)
    probs = out.logits[on].double().softmax(-1)
    edges = probs.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.double), dim=0).T.contiguous()
    assert (probs.T[:, None] == edges[:, :, None]).any(-1).all()
    frequency = fitted.frequency.double().gather(1, torch.searchsorted(edges, probs.T.contiguous())).T
    expected = (frequency / frequency.sum(-1, keepdim=True)).float()
    torch.testing.assert_close(fitted(out)[on].exp(), expected, atol=1e-6, rtol=0)
