"""CaGCN against its formula."""

from __future__ import annotations

import pytest
import torch

from graphcal.lab.baselines import CaGCN
from graphcal.lab.baselines.cagcn import margin
from small_outputs import dense_adjacency, model_outputs


@pytest.fixture(scope="module")
def out():
    return model_outputs()


def test_cagcn_scale_is_a_gcn_on_the_logits(out):
    fitted = CaGCN(epochs=20).fit(out, out.graph.val_mask)
    a = dense_adjacency(out)
    t = a @ (a @ out.logits @ fitted.w1 + fitted.b1).relu() @ fitted.w2 + fitted.b2
    torch.testing.assert_close(fitted.scale(out), torch.log(t.exp() + 1.1).squeeze(-1), atol=1e-5, rtol=1e-5)
    assert (fitted.scale(out) > 0.095).all()
    expected = (fitted.scale(out)[:, None] * out.logits).log_softmax(-1)
    torch.testing.assert_close(fitted(out), expected)


def test_the_margin_rewards_clear_right_and_unclear_wrong_predictions():
    z = torch.tensor([[2.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    first, second = z.softmax(-1)[0].topk(2).values.tolist()
    assert float(margin(z[:1], torch.tensor([0]))) == pytest.approx(1 - first + second)
    assert float(margin(z[:1], torch.tensor([1]))) == pytest.approx(first - second)
    assert float(margin(z, torch.tensor([0, 1]))) == pytest.approx(0.5)


def test_stopping_nodes_decide_when_to_stop(out):
    on, other = out.graph.val_mask, out.graph.train_mask
    ours = CaGCN(epochs=60, patience=5).fit(out, on)
    theirs = CaGCN(epochs=60, patience=5).fit(out, on, stop=other)
    assert not torch.equal(ours.w1, theirs.w1)
