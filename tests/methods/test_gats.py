"""GATS against its formula, node by node."""

from __future__ import annotations

from math import exp

import pytest
import torch
from torch.nn.functional import leaky_relu, softplus

from graphcal.graphs import structure
from graphcal.methods import GATS
from graphcal.methods.gats import AttentionTemperature
from small_outputs import model_outputs, neighbours


@pytest.fixture(scope="module")
def out():
    return model_outputs()


def test_gats_temperature_node_by_node(out):
    g = torch.Generator().manual_seed(2)
    fitted = AttentionTemperature(
        theta=torch.randn(4, 3, generator=g),
        w=torch.tensor(0.7),
        log_bias=torch.tensor(-0.2),
        log_train=torch.tensor(0.4),
        log_near=torch.tensor(-0.3),
    )
    facts, z = structure(out.graph), out.logits
    conf = z.softmax(-1).max(-1).values
    group = torch.where(facts.train_mask, exp(0.4), torch.where(facts.next_to_training, exp(-0.3), 1.0))
    low, high = z.min(-1, keepdim=True).values, z.max(-1, keepdim=True).values
    tau = ((z - low) / (high - low)).sort(-1).values @ fitted.theta  # (N, H)
    temperature = fitted.temperature(out)
    for i in (0, 5, 60, out.num_nodes - 1):
        js = [i, *neighbours(out, i)]
        score = torch.stack([leaky_relu((z[i] / group[i]) @ (z[j] / group[j]), 0.2) for j in js])
        heard = (score.softmax(0) * group[js]) @ tau[js]
        gap = (conf[i] - conf[js]).mean()
        expected = softplus(heard + 0.7 * gap).mean() + exp(-0.2)
        assert float(temperature[i]) == pytest.approx(float(expected), rel=1e-4)


def test_isolated_nodes_hear_themselves(out):
    """The last node has no neighbours: its temperature is a function of its own logits."""
    fitted = GATS(epochs=5).fit(out, out.graph.val_mask)
    lone = out.num_nodes - 1
    assert neighbours(out, lone) == []
    weights = {name: getattr(fitted, name) for name in ("theta", "log_bias")}
    z = out.logits[lone]
    tau = ((z - z.min()) / (z.max() - z.min())).sort().values @ weights["theta"]
    assert float(fitted.temperature(out)[lone]) == pytest.approx(
        float(softplus(tau).mean() + weights["log_bias"].exp()), rel=1e-4
    )
