import pytest
import torch
import two_processes

import graphcal as gc
from graphcal.lab.training import NeighborSampler, Replica, Sampling, train_replicas


def accuracy(run, data):
    return float((run.outputs.pred == data.y)[data.test_mask].double().mean())


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_whole_neighbourhoods_in_one_batch_are_the_ordinary_training(backbone):
    data = gc.lab.synthetic(400, seed=0)
    training = gc.lab.Training(epochs=6, hidden_channels=16, final_weight_decay=1e-3)
    (usual,) = gc.lab.train(data, backbone, training, seeds=[3])
    (batched,) = gc.lab.train(data, backbone, training, seeds=[3], loader=Sampling((-1, -1), batch_size=400))
    torch.testing.assert_close(batched.outputs.logits, usual.outputs.logits, rtol=1e-3, atol=1e-4)
    assert batched.history.val_loss == pytest.approx(usual.history.val_loss, abs=1e-4)
    assert batched.history.train_loss == pytest.approx(usual.history.train_loss, abs=1e-4)


def test_small_samples_learn_as_well_as_whole_neighbourhoods():
    data = gc.lab.synthetic(2000, feature_signal=0.4, seed=1)
    training = gc.lab.Training(epochs=15, hidden_channels=16)
    for backbone in ("gcn", "sage"):
        (run,) = gc.lab.train(data, backbone, training, seeds=[0], loader=Sampling((5, 5), batch_size=25))
        assert accuracy(run, data) > 0.85
        assert run.history.val_loss[-1] < 0.85 * run.history.val_loss[0]


def test_the_decay_of_the_final_layer_counts_and_a_run_does_not_depend_on_those_beside_it():
    data = gc.lab.synthetic(500, seed=2)
    replicas = [Replica(0, final_weight_decay=decay) for decay in (1e-1, 1e-5)]
    training, loader = gc.lab.Training(epochs=12, hidden_channels=16), Sampling((4, 4), batch_size=40)
    strong, weak = train_replicas(data, "sage", training, replicas, loader=loader)
    assert strong.outputs.final.weight.norm() < 0.8 * weak.outputs.final.weight.norm()
    (alone,) = train_replicas(data, "sage", training, replicas[1:], loader=loader)
    assert torch.equal(alone.outputs.logits, weak.outputs.logits)


def test_early_stopping_keeps_the_best_state():
    data = gc.lab.synthetic(500, feature_signal=0.05, seed=4)
    training = gc.lab.Training(epochs=60, patience=4, lr=0.05, hidden_channels=16)
    (run,) = gc.lab.train(data, "sage", training, seeds=[0], loader=Sampling((4, 4), batch_size=32))
    losses = run.history.val_loss
    assert len(losses) < 60
    assert run.history.best_epoch == losses.index(min(losses)) == len(losses) - 1 - 4


def test_progress_is_told_after_every_epoch():
    told = []
    data = gc.lab.synthetic(400, seed=0)
    gc.lab.train(data, "sage", gc.lab.Training(epochs=3), 1, lambda *now: told.append(now), Sampling((2, 2)))
    assert told == [(1, 3, 1), (2, 3, 1), (3, 3, 1)]


def test_loaders_of_your_own_are_accepted():
    data = gc.lab.synthetic(800, feature_signal=0.4, seed=1)
    generator = torch.Generator().manual_seed(0)
    loaders = tuple(
        NeighborSampler(data, (5, 5), 50, nodes, shuffle=True, generator=generator)
        for nodes in (data.train_mask, data.val_mask)
    )
    (run,) = gc.lab.train(data, "sage", gc.lab.Training(epochs=20, hidden_channels=16), seeds=[0], loader=loaders)
    assert accuracy(run, data) > 0.8
    assert run.outputs.num_nodes == 800


def test_what_cannot_be_trained_in_batches_is_refused():
    data = gc.lab.synthetic(400, seed=0)
    with pytest.raises(ValueError, match="the model reads 2 hops, but there are 1 fan-outs"):
        gc.lab.train(data, "gcn", seeds=1, loader=Sampling((5,)))
    with pytest.raises(ValueError, match="GPNReplicas has a loss of its own"):
        gc.lab.train(data, "gpn", seeds=1, loader=Sampling((2,) * 10))
    with pytest.raises(ValueError, match="give Sampling"):
        gc.lab.train(data, "gcn", seeds=1, loader=NeighborSampler(data))


def test_two_processes_train_what_one_trains(tmp_path):
    alone = two_processes.trained()
    context = torch.multiprocessing.get_context("spawn")
    started = [
        context.Process(target=two_processes.train_as, args=(rank, 2, str(tmp_path / "meeting"), str(tmp_path)))
        for rank in range(2)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
        assert process.exitcode == 0
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert torch.equal(first[0], second[0])
    assert first[1] == second[1]
    assert first[1] == pytest.approx(alone.history.val_loss, abs=1e-3)
    assert first[2] == pytest.approx(alone.history.train_loss, abs=1e-3)
    torch.testing.assert_close(first[0], alone.outputs.logits, rtol=1e-2, atol=1e-2)
