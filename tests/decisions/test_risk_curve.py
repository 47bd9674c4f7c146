import json

import numpy as np
import pytest
import torch

from graphcal.decisions.approval import decide
from graphcal.decisions.bounds import share_interval
from graphcal.decisions.thresholds import risk_curve, round_number


@pytest.fixture(scope="module")
def honest():
    g = torch.Generator().manual_seed(0)
    conf = 1 - 0.5 * torch.rand(3000, generator=g, dtype=torch.double) ** 3
    y = (torch.rand(3000, generator=g, dtype=torch.double) > conf).long()
    return torch.stack([conf, 1 - conf], 1).log(), y, torch.arange(3000) < 600


def test_the_curve_counts_what_lies_above_each_threshold(honest):
    log_probs, y, certify = honest
    curve = risk_curve(*honest)
    conf = log_probs.exp().max(1).values
    for t in (0, 10, len(curve.threshold) - 1):
        above = conf >= float(curve.threshold[t])
        wrong = int((y[above & certify] == 1).sum())
        assert curve.nodes[t] == int((above & ~certify).sum())
        assert curve.error[t] == pytest.approx(wrong / int((above & certify).sum()))
        assert (curve.low[t], curve.high[t]) == pytest.approx(share_interval(wrong, int((above & certify).sum()), 0.95))
    assert curve.coverage[-1] == 1
    assert (np.diff(curve.coverage) > 0).all()


def test_each_target_is_decided_as_decide_does(honest):
    curve = risk_curve(*honest, targets=(0.03, 0.05, 0.2))
    assert list(curve.decided) == [
        decide(*honest[:2], certify=honest[2], max_error=r).num_approved for r in (0.03, 0.05, 0.2)
    ]
    assert json.loads(json.dumps(curve.to_dict()))["total"] == 2400


def test_counts_as_people_say_them():
    assert [round_number(v) for v in (0.2, 7, 43, 250, 449, 1234)] == [1, 7, 40, 200, 400, 1000]
    assert round_number(3589, 2) == 3600
