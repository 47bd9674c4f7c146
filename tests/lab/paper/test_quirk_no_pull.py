"""graph-scar without its pull is a scale per node, fitted as graph-scar is."""

from __future__ import annotations

import torch

from conftest import random_graph
from graphcal.lab.paper.quirks.graph_scar_no_pull import GraphScaleAlone
from graphcal.lab.training import Training, train


def test_logits_are_scaled_node_by_node_and_nll_falls() -> None:
    data = random_graph()
    out = train(data, training=Training(hidden_channels=8, epochs=40, patience=None), seeds=[0])[0].outputs
    fitted = GraphScaleAlone().fit(out, on=data.val_mask)
    log_probs = fitted(out)
    assert torch.equal(log_probs.argmax(-1), out.pred)
    assert not fitted.pull.any()
    outside = ~data.train_mask
    z, new = out.logits - out.logits.mean(-1, keepdim=True), log_probs - log_probs.mean(-1, keepdim=True)
    scale = (z * new).sum(-1) / (z * z).sum(-1)
    assert torch.allclose(new[outside], (scale[:, None] * z)[outside], atol=1e-4)
    val = data.val_mask
    before = torch.nn.functional.nll_loss(out.logits.log_softmax(-1)[val], data.y[val])
    assert torch.nn.functional.nll_loss(log_probs[val], data.y[val]) <= before + 1e-6
