"""The loop is the usual one, and each replica is on its own."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn.models import GCN as PyGGCN

from graphcal.training import Training, train

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
