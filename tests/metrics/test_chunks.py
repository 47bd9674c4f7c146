"""The fast pass over rows: the first class wins a tie, many classes and many chunks change nothing."""

import numpy as np
import pytest
import torch
from known_truth import predictions

from graphcal import metrics
from graphcal.metrics import chunks
from graphcal.metrics.bins import bin_of, equal_width_bin, equal_width_edges
from graphcal.metrics.chunks import first_largest, look_at


@pytest.mark.parametrize("C", [2, 7, 32, 33, 200])
def test_predictions_are_argmax(C):
    values = np.random.default_rng(0).integers(0, 5, size=(C, 400)).astype(np.float32)  # full of ties
    assert (first_largest(values) == values.argmax(axis=0)).all()


def test_the_first_class_wins_a_tie():
    log_probs = torch.tensor([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]]).log()
    assert look_at(log_probs, torch.tensor([1, 1])).right.tolist() == [False, True]
    assert metrics.accuracy(log_probs, torch.tensor([1, 1])) == 0.5
    assert metrics.ece(log_probs, torch.tensor([1, 1])) == pytest.approx(abs(0.5 - 0.4))


@pytest.mark.parametrize("bins", [1, 7, 10, 15, 20, 1000])
def test_fast_bins_are_the_slow_ones(bins):
    rng, edges = np.random.default_rng(bins), equal_width_edges(bins)
    near = np.concatenate([np.nextafter(edges.numpy(), side) for side in (-1, 2)]).clip(0, 1)
    conf = np.concatenate([rng.random(5000), edges.numpy(), near, [0.0, 1.0]])
    assert (equal_width_bin(conf, edges) == bin_of(torch.from_numpy(conf), edges).numpy()).all()


def test_threads_change_nothing(monkeypatch):
    log_probs, y = predictions(5000, scale=0.7)
    alone = metrics.reliability(log_probs, y)
    monkeypatch.setattr(chunks, "CHUNK", 100)
    monkeypatch.setattr(chunks, "MANY", 2)
    shared = metrics.reliability(log_probs, y)
    torch.testing.assert_close(shared.gap, alone.gap)
    assert torch.equal(shared.count, alone.count)


def test_a_fault_in_a_late_chunk_is_found(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 100)
    log_probs, y = predictions(1000)
    broken = log_probs.clone()
    broken[950] += 1
    for many in (2, 1000):
        monkeypatch.setattr(chunks, "MANY", many)
        with pytest.raises(ValueError, match="log_softmax"):
            metrics.ece(broken, y)
        with pytest.raises(ValueError, match=r"got values from 0 to 9"):
            metrics.ece(log_probs, y.index_fill(0, torch.tensor([950]), 9))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8])
def test_any_integer_labels_will_do(dtype):
    log_probs, y = predictions(300)
    assert metrics.ece(log_probs, y.to(dtype)) == metrics.ece(log_probs, y)


def test_one_definition_of_ece():
    log_probs, y = predictions(3000, scale=0.7)
    assert metrics.ece(log_probs, y) == pytest.approx(
        float(metrics.reliability(log_probs, y).gap.abs().sum()), abs=1e-12
    )
