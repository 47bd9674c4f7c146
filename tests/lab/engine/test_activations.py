"""ELU and tanh: torch's values and gradients, and the same rounding wherever a number stands."""

import pytest
import torch
from gradients import same_value_and_gradients

from graphcal.lab.engine.layers import elu, tanh


@pytest.mark.parametrize("alpha", [1.0, 0.2])
def test_elu(alpha):
    x = torch.linspace(-30, 30, 301)
    same_value_and_gradients(lambda t: elu(t, alpha), lambda t: torch.nn.functional.elu(t, alpha), x)


def test_tanh():
    same_value_and_gradients(tanh, torch.tanh, torch.linspace(-50, 50, 301))


@pytest.mark.parametrize("function", [elu, tanh])
def test_a_number_is_rounded_alike_at_every_place(function):
    x = torch.randn(1000)
    whole = function(x)
    for start, length in ((0, 1), (3, 7), (990, 10)):
        assert torch.equal(function(x[start : start + length]), whole[start : start + length])
