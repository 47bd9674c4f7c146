"""Matrix scaling and its penalty."""

from __future__ import annotations

import torch

from conftest import random_graph
from graphcal.methods import MatrixScaling
from small_outputs import with_logits


def test_matrix_scaling_chooses_a_strong_penalty_when_there_is_nothing_to_mix():
    g = torch.Generator().manual_seed(0)
    graph = random_graph(nodes=400, train=20, val=150)
    logits = torch.randn(400, 4, generator=g)
    graph.y = torch.multinomial((2 * logits).softmax(-1), 1, generator=g).squeeze(
        -1
    )  # a plain temperature is the truth
    plain = MatrixScaling().fit(with_logits(logits, graph), graph.val_mask)
    mixed = with_logits(
        logits @ torch.linalg.qr(torch.randn(4, 4, generator=g)).Q, graph
    )  # the truth needs a full matrix
    full = MatrixScaling().fit(mixed, graph.val_mask)
    assert full.penalty < plain.penalty
    off = plain.matrix[~torch.eye(4, dtype=torch.bool)]
    assert off.abs().max() < 0.1 * plain.matrix.diag().min()
