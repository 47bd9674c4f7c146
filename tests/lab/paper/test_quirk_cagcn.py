"""CaGCN as two pieces of code have it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import softplus

from conftest import random_graph
from graphcal.lab.baselines import CaGCN
from graphcal.lab.paper.quirks.cagcn_code import CaGCNofGATS, CaGCNofItsCode
from graphcal.lab.training import Training, train
from small_outputs import dense_adjacency, model_outputs


@pytest.fixture(scope="module")
def out():
    return model_outputs()


def test_with_base_dropout_it_needs_the_model_and_learns_something_else(out):
    with pytest.raises(ValueError, match="cagcn-code runs the model again with its dropout active"):
        CaGCNofItsCode().fit(replace(out, model=None), out.graph.val_mask)
    noisy = CaGCNofItsCode(epochs=30).fit(out, out.graph.val_mask)
    clean = CaGCN(epochs=30).fit(out, out.graph.val_mask)
    assert not torch.allclose(noisy(out), clean(out), atol=1e-4)


@pytest.mark.parametrize("backbone", ["gcn", "gat", "gat-cagcn"])
def test_models_of_ours_can_be_run_again_with_their_dropout_on(backbone):
    graph = random_graph()
    out = train(graph, backbone, Training(epochs=20, hidden_channels=8), seeds=[0])[0].outputs
    log_probs = CaGCNofItsCode(epochs=3).fit(out, on=graph.val_mask)(out)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(out.num_nodes), atol=1e-5, rtol=0)


def test_the_copy_in_gats_has_a_softplus_and_no_margin(out):
    fitted = CaGCNofGATS(epochs=20).fit(out, out.graph.val_mask)
    a = dense_adjacency(out)
    t = a @ (a @ out.logits @ fitted.w1 + fitted.b1).relu() @ fitted.w2 + fitted.b2
    torch.testing.assert_close(fitted(out), (softplus(t) * out.logits).log_softmax(-1), atol=1e-5, rtol=1e-5)
    assert CaGCNofGATS().margin == 0.0
    assert CaGCNofGATS().hidden == CaGCN().hidden
