"""The loop is the usual one, and each replica is on its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn.models import GCN as PyGGCN

from graphcal.lab.training import History, Training, train
from graphcal.lab.training._loop import EarlyStopping
from graphcal.methods.temperature import fit_scale

QUICK = Training(hidden_channels=8, epochs=30, patience=None)


def test_without_dropout_it_is_the_usual_loop(graph):
    """PyG's GCN from the same initial weights, torch's Adam, coupled decay, a smaller decay and rate for the last layer."""
    settings = replace(QUICK, dropout=0.0, lr=0.05, final_lr=0.02, final_weight_decay=1e-4, weight_decay=1e-2)
    ours = train(graph, training=settings, seeds=[3])[0]
    start = train(graph, training=replace(settings, epochs=1, lr=0.0, final_lr=0.0), seeds=[3])[0].model.replicas
    theirs = PyGGCN(10, 8, 2, 4, dropout=0.0)
    with torch.no_grad():
        for conv, layer in zip(theirs.convs, [start.convs[0], start.head]):
            conv.lin.weight.copy_(layer.weight[0].T)
            conv.bias.copy_(layer.bias[0, 0])
    first, last = theirs.convs
    optimizer = torch.optim.Adam(
        [
            {"params": first.parameters(), "lr": 0.05, "weight_decay": 1e-2},
            {"params": last.parameters(), "lr": 0.02, "weight_decay": 1e-4},
        ]
    )
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(theirs(graph.x, graph.edge_index)[graph.train_mask], graph.y[graph.train_mask]).backward()
        optimizer.step()
        with torch.no_grad():
            logits = theirs(graph.x, graph.edge_index)
        losses.append(float(F.cross_entropy(logits[graph.val_mask], graph.y[graph.val_mask])))
    assert ours.history.val_loss == pytest.approx(losses, abs=1e-4)


def test_each_replica_stops_on_its_own_and_equals_the_run_alone(graph):
    settings = replace(QUICK, epochs=300, lr=0.1, weight_decay=0.0, patience=5)
    together = train(graph, training=settings, seeds=range(6))
    lengths = [run.history.epochs for run in together]
    assert len(set(lengths)) > 1
    assert max(lengths) < 300
    for run, length in zip(together, lengths):
        assert length == run.history.best_epoch + 1 + 5
        alone = train(graph, training=settings, seeds=[run.seed])[0]
        assert torch.equal(run.outputs.logits, alone.outputs.logits)
        assert run.history.val_loss == alone.history.val_loss


def validation_loss(run, graph):
    return float(F.cross_entropy(run.outputs.logits[graph.val_mask], graph.y[graph.val_mask]))


def test_the_best_state_is_returned(graph):
    for run in train(graph, training=replace(QUICK, epochs=80, lr=0.1, weight_decay=0.0), seeds=range(3)):
        losses = run.history.val_loss
        assert run.history.best_epoch == losses.index(min(losses))
        assert run.history.best_epoch < 79  # it over-fits, or this test says nothing
        assert validation_loss(run, graph) == pytest.approx(min(losses), abs=1e-5)


@pytest.mark.parametrize("monitor", ["loss", "accuracy", "both"])
def test_what_is_monitored(graph, monitor):
    run = train(graph, training=replace(QUICK, epochs=60, lr=0.1, monitor=monitor), seeds=[2])[0]
    right = run.outputs.pred[graph.val_mask] == graph.y[graph.val_mask]
    by_loss = train(graph, training=replace(QUICK, epochs=60, lr=0.1), seeds=[2])[0]
    right_by_loss = by_loss.outputs.pred[graph.val_mask] == graph.y[graph.val_mask]
    if monitor == "loss":
        assert torch.equal(run.outputs.logits, by_loss.outputs.logits)
    else:
        assert right.float().mean() >= right_by_loss.float().mean()


def test_refinement_is_what_a_temperature_would_leave(graph):
    training = replace(QUICK, epochs=60, lr=0.1, weight_decay=0.0, monitor="refinement")
    run = train(graph, training=training, seeds=[2])[0]
    logits, y = run.outputs.logits[graph.val_mask].double(), graph.y[graph.val_mask]
    scale = fit_scale(logits, y)
    refined = float(F.cross_entropy(scale * logits, y))
    assert refined == pytest.approx(min(run.history.val_loss), abs=1e-4)
    by_loss = train(graph, training=replace(training, monitor="loss"), seeds=[2])[0]
    assert run.history.best_epoch != by_loss.history.best_epoch  # the two rules differ here, or this test says nothing


def followed(monitor, patience, losses, accuracies):
    """One replica whose only parameter is the epoch's number."""
    model = torch.nn.ParameterDict({"epoch": torch.nn.Parameter(torch.zeros(1))})
    stopping = EarlyStopping(model, Training(monitor=monitor, patience=patience), 1)
    for epoch, (loss, right) in enumerate(zip(losses, accuracies)):
        with torch.no_grad():
            model["epoch"].fill_(epoch)
        accuracy = None if monitor == "loss" else torch.tensor([right])
        if not stopping.update(epoch, model, torch.zeros(1), torch.tensor([loss]), accuracy).all():
            break
    return int(stopping.best_states()[0]["epoch"]), stopping.histories[0]


@pytest.mark.parametrize(
    ("monitor", "best", "epochs"),
    [
        ("loss", 2, 6),  # 0.5, and three epochs without a lower one
        ("accuracy", 3, 7),  # the first 0.9; an equal one is no progress
        (
            "both",
            6,
            9,
        ),  # the first epoch after the third that is worse in neither; one of the two was often as good as ever
    ],
)
def test_the_rules(monitor, best, epochs):
    losses, accuracies = [0.9, 0.7, 0.5, 0.6, 0.6, 0.8, 0.4, 0.9, 0.9], [0.5, 0.6, 0.6, 0.9, 0.8, 0.9, 0.9, 0.1, 0.1]
    state, history = followed(monitor, 3, losses, accuracies)
    assert (state, history.best_epoch) == (best, best)
    assert history.epochs == epochs


def test_gats_rule_keeps_a_state_only_if_neither_is_worse():
    state, history = followed("both", 3, [0.5, 0.4, 0.6], [0.6, 0.5, 0.7])
    assert state == 0, (
        "a lower loss with fewer right, then more right with a higher loss: progress, but nothing to keep"
    )
    assert history.epochs == 3


def test_a_loss_that_is_no_number_is_never_the_best():
    _, history = followed("loss", None, [float("nan")] * 3, [0.0] * 3)
    assert (history.best_epoch, history.epochs) == (-1, 3)


def test_a_history_counts_its_epochs():
    assert History(val_loss=[1.0, 0.5]).epochs == 2
