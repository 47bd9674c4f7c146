"""SCAR in logit space equals SCAR in representation space on every backbone."""

from __future__ import annotations

import pytest
import torch

from conftest import random_graph
from graphcal import Outputs, structure
from graphcal.core import FinalLayer
from graphcal.lab import BACKBONES, Training, train
from graphcal.methods.scar import fit_pull


@pytest.mark.parametrize("name", sorted(set(BACKBONES.builtin) - {"gpn"}))
def test_given_weights_agree_with_representation_space_for_every_backbone(name):
    graph = random_graph(nodes=120, train=30, val=50)
    out = train(graph, name, Training(hidden_channels=4, epochs=3), seeds=[0])[0].outputs
    if out.final is None:
        pytest.skip(f"{name} has no final layer that its logits are linear in")
    weight, bias, hidden = (v.double() for v in (out.final.weight, out.final.bias, out.final_representation))
    exact = Outputs(hidden @ weight.T + bias, graph, FinalLayer.from_weight(weight, bias), hidden)
    assert torch.allclose(exact.logits, out.logits.double(), atol=1e-4)
    near = structure(graph).next_to_training[:, None]
    w = torch.where(near, 0.01, 0.05).double() * ~graph.train_mask[:, None]
    moved = ((1 - w) * hidden + w * weight[exact.pred]) @ weight.T + bias
    ours = fit_pull(exact, graph.val_mask, 0.01, 0.05, guarded=False)(exact)
    assert torch.allclose(ours, moved.log_softmax(-1), atol=1e-6)
