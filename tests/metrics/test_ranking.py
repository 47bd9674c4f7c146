"""AURC by hand, with ties."""

import itertools

import pytest
import torch
from known_truth import binary

from graphcal import metrics


def test_aurc_by_hand():
    log_probs, y = binary(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1.0, 0.0, 1.0, 1.0]))
    assert metrics.aurc(log_probs, y) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 4) / 4)


def test_aurc_of_ties_is_the_mean_over_their_orders():
    conf, right = [0.9, 0.7, 0.7, 0.7], [1.0, 0.0, 1.0, 1.0]
    areas = []
    for order in itertools.permutations([1, 2, 3]):
        wrong = torch.tensor([1 - right[0], *(1 - right[i] for i in order)]).cumsum(0)
        areas.append(float((wrong / torch.arange(1, 5)).mean()))
    ours = metrics.aurc(*binary(torch.tensor(conf), torch.tensor(right)))
    assert ours == pytest.approx(sum(areas) / len(areas))
