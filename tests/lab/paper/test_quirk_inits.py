"""The initial weights of SCAR's code."""

import pytest
import torch

from graphcal.lab.engine.layers import init_param


@pytest.mark.parametrize("bias", [False, True])
def test_negative_normal(bias):
    weight = init_param((400, 200), 50, 16, [torch.Generator().manual_seed(0)], "negative-normal", bias).detach()
    assert float(weight.mean()) == pytest.approx(-0.25, abs=0.01)
    assert float(weight.std()) == pytest.approx(0.25, abs=0.01)
