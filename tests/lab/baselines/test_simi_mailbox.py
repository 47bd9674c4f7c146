"""The mailbox by hand, and groups whose confidence matches their accuracy."""

from __future__ import annotations

import pytest
import torch

from conftest import random_graph
from graphcal.lab.baselines import SimiMailbox
from graphcal.lab.baselines.simi_mailbox import mailbox
from small_outputs import model_outputs, neighbours


def test_mailbox_by_hand():
    out = model_outputs()
    points = mailbox(out)
    z = out.logits
    for i in (1, 17, out.num_nodes - 1):
        js = neighbours(out, i) or [i]
        alike = torch.stack([(z[i] @ z[j]).sigmoid() for j in js]).mean()
        assert float(points[i, 1]) == pytest.approx(float(alike), rel=1e-5)


def test_groups_balance_confidence_and_accuracy():
    graph = random_graph(nodes=900, train=20, val=700)
    out = model_outputs(graph)
    plain, balanced = (SimiMailbox(groups=3, balance=b, shrink=0.0).fit(out, graph.val_mask) for b in (0.0, 1e4))
    right = (out.pred == graph.y).float()

    def worst_gap(fitted):
        conf = fitted(out).exp().max(-1).values
        low, span = fitted.low, fitted.span
        group = torch.cdist((mailbox(out) - low) / span, fitted.centres).argmin(-1)
        on = graph.val_mask
        return max(float((conf - right)[on & (group == g)].mean().abs()) for g in range(3))

    assert worst_gap(balanced) < 1e-3 < worst_gap(plain)
