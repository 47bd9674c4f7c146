"""The noisy top-k gate."""

from __future__ import annotations

import torch

from graphcal.lab.baselines.gets import noisy_top_k


def test_gates_pick_k_experts_and_the_noise_keeps_them_busy():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(400, 5, generator=g)
    zero = torch.zeros(5, 7)
    gates, imbalance = noisy_top_k(x, zero, zero, 2, g)
    assert ((gates > 0).sum(-1) == 2).all()
    torch.testing.assert_close(gates.sum(-1), torch.ones(400))
    lopsided = torch.zeros(5, 7)
    lopsided[0, 0] = 50.0
    _, worse = noisy_top_k(x.abs(), lopsided, zero, 2, g)
    assert float(worse) > 5 * float(imbalance)
