"""The power of the tables' test, on models whose error is known."""

from __future__ import annotations

import pytest
import torch

from graphcal.lab.paper.power import draw, find_power, true_error


def test_labels_are_drawn_from_the_softmax() -> None:
    z, y = draw(20_000, torch.Generator().manual_seed(0))
    conf, pred = z.softmax(1).max(1)
    assert float((pred == y).double().mean()) == pytest.approx(float(conf.mean()), abs=0.01)
    assert float(conf.mean()) == pytest.approx(0.8, abs=0.01)


@pytest.mark.slow
def test_a_larger_error_is_found_more_often_and_nll_sees_more() -> None:
    assert true_error(0.91, 100_000) == pytest.approx(1.9, abs=0.2)
    small, large = (find_power(scale, sets=20, draws=100) for scale in (0.95, 0.6))
    assert small.error < large.error
    assert small.by_ece < large.by_ece
    assert large.by_nll >= large.by_ece
