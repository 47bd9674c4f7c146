"""Definitions, worked by hand: a factor or a half that is left out shows here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphcal.metrics import inputs
from graphcal.metrics.bins import mean_reliability, reliability
from graphcal.metrics.ece_variants import CELLS, kde_ece_of
from graphcal.metrics.floor import brownian_max_sf, draw_errors
from graphcal.metrics.scores import brier_terms
from graphcal.metrics.selective import auroc_of, grouped


def test_brier_of_a_node_is_the_sum_over_classes() -> None:
    log_probs = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]]).log()
    expected = [0.25 + 0.09 + 0.64, 0.01 + 0.04 + 0.01]  # labels 2 and 1
    assert brier_terms(log_probs, torch.tensor([2, 1])).tolist() == pytest.approx(expected, abs=1e-6)


def test_a_tie_counts_one_half() -> None:
    conf, right = torch.tensor([0.9, 0.9, 0.5, 0.5]).double(), torch.tensor([1.0, 0.0, 0.0, 0.0]).double()
    assert auroc_of(*grouped(conf, right)) == pytest.approx((0.5 + 1 + 1) / 3)


def test_the_mean_of_reliabilities_is_a_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [
        reliability(
            torch.randn(50, 3, generator=generator).log_softmax(-1), torch.randint(3, (50,), generator=generator)
        )
        for _ in range(4)
    ]
    mean = mean_reliability(parts)
    assert mean.nodes == 50
    assert mean.conf_sum.tolist() == pytest.approx((sum(p.conf_sum for p in parts) / 4).tolist())


def test_the_width_of_the_kernel_of_kde_ece() -> None:
    """sd(c) (2N)^(-1/5), with all nodes in two cells and those of the first right."""
    count = np.zeros(CELLS)
    places = [1600, 2400]
    count[places] = 50.0
    z = (np.arange(CELLS) + 0.5) / CELLS
    sd = (z[2400] - z[1600]) / 2 * 200 ** (-0.2)
    u = (z[:, None] - z[None, places]) / (3 * sd)
    kernel = np.clip(1 - u**2, 0, None) ** 3
    density = (kernel / kernel.sum(0)).mean(1)
    right = np.zeros(CELLS)
    right[1600] = 50.0
    of_right = (kernel / kernel.sum(0))[:, 0] / 2
    assert kde_ece_of(count, right) == pytest.approx(float(np.abs(z * density - of_right).sum()), abs=2e-4)


def test_a_brownian_motion_wanders_beyond_2_2414_once_in_twenty_times() -> None:
    assert brownian_max_sf(2.2414) == pytest.approx(0.05, abs=1e-4)
    assert brownian_max_sf(0.1) == 1.0


def test_errors_of_many_nodes_are_drawn_as_those_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = torch.linspace(0.35, 0.99, 4000, dtype=torch.float64)
    few = draw_errors(conf, 15, 2000, torch.Generator().manual_seed(0))
    monkeypatch.setattr(inputs, "RESAMPLE_UP_TO", 10)
    many = draw_errors(conf, 15, 2000, torch.Generator().manual_seed(1))
    assert float(many.mean()) == pytest.approx(float(few.mean()), rel=0.03)


def test_the_squares_of_a_bin_are_those_of_its_nodes() -> None:
    generator = torch.Generator().manual_seed(1)
    log_probs, y = torch.randn(80, 3, generator=generator).log_softmax(-1), torch.randint(3, (80,), generator=generator)
    bins, (top, pred) = reliability(log_probs, y, bins=5), log_probs.double().exp().max(1)
    right = (pred == y).double()
    assert float(bins.square.sum()) == pytest.approx(float((right - top).square().sum()))
    assert float(bins.variance.sum()) == pytest.approx(float((top * (1 - top)).sum()))
