"""Chunks and threads change nothing but the time."""

from dataclasses import replace

import pytest
import torch

from graphcal.lab.training import Training, train
from graphcal.lab.training.trainer import LARGEST, split_into_chunks

QUICK = Training(hidden_channels=8, epochs=30, patience=None)


def test_threads_and_chunks_change_nothing(graph):
    settings = replace(QUICK, patience=4, lr=0.1)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = train(graph, training=settings, seeds=range(11))
        torch.set_num_threads(3)
        three = train(graph, training=settings, seeds=range(11))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert [run.seed for run in three] == list(range(11))
    for a, b in zip(one, three):
        assert torch.equal(a.outputs.logits, b.outputs.logits)


def test_progress_is_told(graph):
    seen = []
    train(graph, training=QUICK, seeds=range(3), progress=lambda *now: seen.append(now))
    assert seen[-1][:2] == (30, 30)
    assert all(0 <= running <= 3 for _, _, running in seen)


def test_an_interrupted_training_stops_and_restores_the_threads(graph):
    threads = torch.get_num_threads()

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(graph, training=replace(QUICK, epochs=10**6, patience=None), seeds=range(3), progress=interrupt)
    assert torch.get_num_threads() == threads


def mask(*nodes):
    selected = torch.zeros(10, dtype=torch.bool)
    selected[list(nodes)] = True
    return selected


@pytest.mark.parametrize(("replicas", "activations"), [(1, 10), (7, 10), (40, 10), (5, 10**8)])
def test_every_replica_is_in_one_chunk_that_is_not_too_large(replicas, activations):
    chunks = split_into_chunks([(mask(0), mask(1))] * replicas, activations)
    assert sorted(i for chunk in chunks for i in chunk.members) == list(range(replicas))
    assert max(len(chunk.members) for chunk in chunks) <= (1 if activations == 10**8 else LARGEST)


def test_replicas_on_the_same_nodes_share_a_chunk():
    masks = [(mask(0), mask(1)), (mask(2), mask(3))] * 2 * LARGEST * torch.get_num_threads()
    for chunk in split_into_chunks(masks, 10):
        assert len({i % 2 for i in chunk.members}) == 1
