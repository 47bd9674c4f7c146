"""Losses against their formulas, written node by node."""

import json
from dataclasses import asdict, replace
from math import log

import pytest
import torch
from scipy.optimize import minimize_scalar

from graphcal.lab.training import AULS, CrossEntropy, Training, train
from graphcal.lab.training.losses import LOSSES, Targets, accuracy, loss_of, nll, refined_nll

SETTINGS = Training(hidden_channels=8, epochs=20, patience=None)
EPOCH = 4
Y = torch.tensor([0, 2, 1, 1])
WEIGHTS = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.0, 0.5, 0.0]])


@pytest.fixture
def logits():
    return torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)) * 2


def check(loss, logits, node_loss):
    by_hand = [
        sum(float(WEIGHTS[r, i]) * node_loss(logits[r, i].softmax(0).tolist(), int(Y[i])) for i in range(4))
        for r in range(2)
    ]
    assert loss(logits, Targets(Y, WEIGHTS), EPOCH).tolist() == pytest.approx(by_hand, rel=1e-5)


def test_cross_entropy(logits):
    check(CrossEntropy(), logits, lambda p, y: -log(p[y]))


@pytest.mark.parametrize("epsilon", [-0.5, 0.2])
def test_au_ls(logits, epsilon):
    e = epsilon + 0.5 / (1 + EPOCH)

    def smoothed(p, y):
        return -sum(((1 - e) * (c == y) + e / 3) * log(p[c] + 1e-9) for c in range(3))

    check(AULS(epsilon=epsilon), logits, smoothed)


def test_accuracy(logits):
    right = (logits.argmax(-1) == Y).float()
    assert accuracy(logits, Targets(Y, WEIGHTS)).tolist() == pytest.approx((right * WEIGHTS).sum(1).tolist())


def test_node_weights_pick_each_replicas_nodes(logits):
    only = Targets(Y, torch.eye(4)[:2])
    assert nll(logits, only).tolist() == pytest.approx([float(-logits[r, r].log_softmax(0)[Y[r]]) for r in range(2)])


@pytest.mark.parametrize("name", list(LOSSES))
def test_every_loss_trains_and_stops_on_cross_entropy(name, graph):
    run = train(graph, training=replace(SETTINGS, loss=LOSSES[name]()), seeds=[0])[0]
    z, y = run.outputs.logits[graph.val_mask], graph.y[graph.val_mask]
    assert float(torch.nn.functional.cross_entropy(z, y)) == pytest.approx(min(run.history.val_loss), abs=1e-5)
    assert run.history.train_loss[-1] < run.history.train_loss[0]


@pytest.mark.slow
def test_negative_smoothing_raises_confidence(graph):
    def confidence(loss):
        out = train(graph, training=replace(SETTINGS, epochs=100, loss=loss), seeds=[0])[0].outputs
        return float(out.logits.softmax(-1).amax(-1).mean())

    assert confidence(AULS(epsilon=-0.3)) > confidence(CrossEntropy()) > confidence(AULS(epsilon=0.3))


@pytest.mark.parametrize("loss", [CrossEntropy(), AULS(epsilon=-0.3, gamma=0.9)], ids=repr)
def test_a_loss_is_plain_data_and_comes_back_from_it(loss):
    plain = json.loads(json.dumps(asdict(loss)))
    assert plain["name"] in LOSSES
    assert loss_of(plain) == loss


def test_a_name_alone_has_the_defaults():
    assert loss_of("au-ls") == loss_of({"name": "au-ls"}) == AULS()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("focal", "unknown loss 'focal'; choose among cross-entropy, au-ls"),
        ({"epsilon": 0.1}, "unknown loss None; choose among cross-entropy, au-ls"),
        ({"name": "au-ls", "eps": 0.1}, "loss 'au-ls' has no setting eps; it has epsilon, gamma"),
        ({"name": "cross-entropy", "gamma": 1}, "loss 'cross-entropy' has no setting gamma; it has none"),
    ],
    ids=str,
)
def test_what_is_no_loss_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        loss_of(wrong)


def test_refined_nll_is_the_least_over_temperatures():
    """Against SciPy, each replica with its own weights: an under-confident, an over-confident and a useless model."""
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(1, 200, 4, generator=generator)
    y = torch.multinomial((2 * z[0]).softmax(-1), 1, generator=generator).squeeze(1)
    logits = torch.cat([0.3 * z, 9 * z, -z])
    weights = torch.rand(3, 200, generator=generator)
    targets = Targets(y, weights / weights.sum(1, keepdim=True))
    losses = refined_nll(logits, targets)
    for r in range(2):

        def at(u, r=r):
            return float(
                nll(torch.exp(torch.tensor(u)) * logits[r : r + 1].double(), Targets(y, targets.weights[r : r + 1]))
            )

        assert float(losses[r]) == pytest.approx(minimize_scalar(at, bounds=(-4, 4), method="bounded").fun, abs=1e-5)
    assert float(losses[2]) == pytest.approx(log(4), abs=0.03)  # wrong everywhere: no temperature is better than none
