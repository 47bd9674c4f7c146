"""Random numbers come from the generator that is passed in."""

from __future__ import annotations

import torch

from graphcal.methods.solvers.adam import dropout, uniform


def test_dropout_keeps_the_mean_and_nothing_happens_at_rate_zero():
    ones = torch.ones(4000, 5)
    dropped = dropout(ones, 0.25, torch.Generator().manual_seed(0))
    assert set(dropped.unique().tolist()) == {0.0, float(torch.tensor(1.0) / 0.75)}
    assert abs(float(dropped.mean()) - 1) < 0.02
    assert dropout(ones, 0.0, torch.Generator()) is ones
    assert torch.equal(dropped, dropout(ones, 0.25, torch.Generator().manual_seed(0)))


def test_uniform_numbers_fill_their_interval_in_any_precision():
    wide, narrow = (
        uniform((1000,), 0.3, torch.Generator().manual_seed(0), torch.ones(1, dtype=d))
        for d in (torch.double, torch.float)
    )
    assert 0.29 < float(wide.abs().max()) <= 0.3
    assert torch.equal(wide.float(), narrow)
