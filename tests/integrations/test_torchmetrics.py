"""The metric adds up over batches to what one pass gives."""

import pytest
import torch

from graphcal import metrics

pytest.importorskip("torchmetrics")
from graphcal.integrations.torchmetrics import CalibrationErrorWithFloor


def test_batches_and_processes_add_up_to_one_pass():
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(700, 4, generator=generator).log_softmax(-1)
    y = torch.randint(4, (700,), generator=generator)
    one, other = CalibrationErrorWithFloor(4, bins=15), CalibrationErrorWithFloor(4, bins=15)
    for rows in (slice(0, 100), slice(100, 350)):
        one.update(log_probs[rows], y[rows])
    other.update(log_probs[350:], y[350:])
    for name in one._defaults:  # what torchmetrics does between processes
        setattr(one, name, getattr(one, name) + getattr(other, name))
    assert float(one.compute()) == pytest.approx(metrics.ece(log_probs, y, bins=15))
    whole = metrics.Tally.of(log_probs, y, 15)
    assert one.floor() == pytest.approx(whole.ece_floor)
    assert one.interval() == pytest.approx(whole.interval())
    assert one.tally().nodes == 700
    one.reset()
    one.update(log_probs[:50], y[:50])
    assert one.tally().nodes == 50
    assert float(one.compute()) == pytest.approx(metrics.ece(log_probs[:50], y[:50], bins=15))
