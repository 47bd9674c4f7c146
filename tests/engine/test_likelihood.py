"""NLL, and Platt's targets."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from graphcal.engine.likelihood import mean_nll, platt_targets, soft_nll

Z = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.double)


def test_both_are_cross_entropies():
    y, target = Z.flip(1).argmax(-1), Z.flip(0).softmax(-1)
    assert float(mean_nll(Z, y)) == pytest.approx(float(cross_entropy(Z, y)))
    assert float(soft_nll(Z, target)) == pytest.approx(float(cross_entropy(Z, target)))


def test_labels_are_smoothed_only_where_all_are_right():
    right, wrong = Z.argmax(-1), Z.argmin(-1)
    smooth = platt_targets(right, Z)
    torch.testing.assert_close(smooth.amax(-1), torch.full((8,), 1 - 1 / 10, dtype=torch.double))
    torch.testing.assert_close(smooth.sum(-1), torch.ones(8, dtype=torch.double))
    assert torch.equal(platt_targets(wrong, Z), one_hot(wrong, 3).double())


def test_each_column_is_smoothed_by_its_own_nodes():
    y = torch.where(torch.arange(8) < 3, Z.argmax(-1), Z.argmin(-1))
    columns = torch.stack([torch.arange(8) < 3, torch.arange(8) >= 3], -1).double()[:, None, :] * Z[:, :, None]
    smooth = platt_targets(y, Z, columns)
    torch.testing.assert_close(smooth[:3].amax(-1), torch.full((3,), 1 - 1 / 5, dtype=torch.double))
    assert torch.equal(smooth[3:], one_hot(y, 3).double()[3:])
