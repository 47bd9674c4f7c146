"""Losses against their formulas, written node by node."""

from dataclasses import replace
from math import log

import pytest
import torch

from graphcal.training import Training, train
from graphcal.training.losses import LOSSES, Pass, Targets, accuracy, loss_of, nll

SETTINGS = Training(hidden=8, epochs=20, patience=None)
Y = torch.tensor([0, 2, 1, 1])
WEIGHTS = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.0, 0.5, 0.0]])


@pytest.fixture
def done():
    torch.manual_seed(0)
    return Pass(torch.randn(2, 4, 3) * 2, 4, torch.randn(2, 4, 5), torch.randn(2, 5, 3))


def by_hand(done, node_loss):
    return [
        sum(float(WEIGHTS[r, i]) * node_loss(done.logits[r, i].softmax(0).tolist(), int(Y[i]), r, i) for i in range(4))
        for r in range(2)
    ]


def check(name, done, node_loss, **changes):
    settings = replace(SETTINGS, loss=name, **changes)
    ours = loss_of(settings)(done, Targets(Y, WEIGHTS), settings).tolist()
    assert ours == pytest.approx(by_hand(done, node_loss), rel=1e-5)


def test_cross_entropy(done):
    check("ce", done, lambda p, y, r, i: -log(p[y]))


@pytest.mark.parametrize("epsilon", [-0.5, 0.2])
def test_au_ls(done, epsilon):
    e = epsilon + 0.5 / (1 + done.epoch)

    def smoothed(p, y, r, i):
        return -sum(((1 - e) * (c == y) + e / 3) * log(p[c] + 1e-9) for c in range(3))

    check("au-ls", done, smoothed, au_epsilon=epsilon)


def test_gcl(done):
    check("gcl", done, lambda p, y, r, i: -(1 + 0.3 * p[y]) * log(p[y]), gcl_gamma=0.3)


def test_centroid(done):
    def pulled(p, y, r, i):
        cosine = torch.cosine_similarity(done.hidden[r, i], done.centroids[r, :, y], dim=0)
        return -log(p[y]) + 0.7 * (1 - float(cosine))

    check("centroid", done, pulled, centroid_pull=0.7)


def test_accuracy(done):
    right = (done.logits.argmax(-1) == Y).float()
    assert accuracy(done.logits, Targets(Y, WEIGHTS)).tolist() == pytest.approx((right * WEIGHTS).sum(1).tolist())


def test_node_weights_pick_each_replicas_nodes(done):
    only = Targets(Y, torch.eye(4)[:2])
    assert nll(done.logits, only).tolist() == pytest.approx(
        [float(-done.logits[r, r].log_softmax(0)[Y[r]]) for r in range(2)]
    )


@pytest.mark.parametrize("name", list(LOSSES))
def test_every_loss_trains_and_stops_on_cross_entropy(name, graph):
    run = train(graph, training=replace(SETTINGS, loss=name), seeds=[0])[0]
    z, y = run.outputs.logits[graph.val_mask], graph.y[graph.val_mask]
    assert float(torch.nn.functional.cross_entropy(z, y)) == pytest.approx(min(run.history.val_loss), abs=1e-5)
    assert run.history.train_loss[-1] < run.history.train_loss[0]


def test_the_centroid_term_pulls(graph):
    def cosine(pull):
        settings = replace(SETTINGS, loss="centroid", centroid_pull=pull, epochs=100)
        out = train(graph, training=settings, seeds=[0])[0].outputs
        h, y = out.hidden[graph.train_mask], graph.y[graph.train_mask]
        return float(torch.cosine_similarity(h, out.final.weight[y], dim=-1).mean())

    assert cosine(5.0) > cosine(0.0) + 0.02


def test_negative_smoothing_raises_confidence(graph):
    def confidence(**changes):
        out = train(graph, training=replace(SETTINGS, epochs=100, **changes), seeds=[0])[0].outputs
        return float(out.logits.softmax(-1).amax(-1).mean())

    assert confidence(loss="au-ls", au_epsilon=-0.3) > confidence() > confidence(loss="au-ls", au_epsilon=0.3)


def test_the_centroid_term_needs_a_final_layer(graph):
    with pytest.raises(ValueError, match="needs a backbone with a final linear layer"):
        train(graph, "gat-cagcn", replace(SETTINGS, loss="centroid"), seeds=[0])


def test_an_unknown_loss_lists_the_choices(graph):
    with pytest.raises(ValueError, match="unknown loss 'focal'; choose among ce, au-ls, gcl, centroid"):
        train(graph, training=replace(SETTINGS, loss="focal"), seeds=[0])


@pytest.mark.parametrize("name", ["gat", "sage", "appnp", "sgc", "gcnii"])
def test_the_centroid_term_works_for_every_kind_of_final_layer(name, graph):
    settings = replace(SETTINGS, epochs=6, init="glorot", loss="centroid")
    pulled = train(graph, name, replace(settings, centroid_pull=0.0), seeds=[0])[0]
    plain = train(graph, name, replace(settings, loss="ce"), seeds=[0])[0]
    if name != "gat":  # its representation is made before the projection, so rounding differs
        assert pulled.history.train_loss == pytest.approx(plain.history.train_loss, abs=1e-3)
    assert train(graph, name, settings, seeds=[0])[0].history.train_loss[0] > pulled.history.train_loss[0]


def test_a_backbone_with_its_own_loss_keeps_it(graph):
    with pytest.raises(ValueError, match="has a loss of its own: loss='gcl' cannot replace it"):
        train(graph, "gpn", replace(SETTINGS, loss="gcl"), seeds=[0])
