"""Nothing but log-probabilities and class numbers is measured; many classes, chunks and threads change nothing."""

import numpy as np
import pytest
import torch
from known_truth import predictions

from graphcal import core, metrics
from graphcal.metrics import inputs
from graphcal.metrics.bins import bin_of, equal_width_bin, equal_width_edges
from graphcal.metrics.inputs import first_largest, read_chunk

FUNCTIONS = [
    metrics.accuracy,
    metrics.aurc,
    metrics.auroc,
    metrics.brier,
    metrics.calibration_test,
    metrics.calibration_refinement,
    metrics.ece,
    metrics.ece_classwise,
    metrics.ece_debiased,
    metrics.ece_interval,
    metrics.ece_top_label,
    metrics.evaluate,
    metrics.judge,
    metrics.kde_ece,
    metrics.mce,
    metrics.nll,
    metrics.reliability,
    metrics.smooth_ece,
    metrics.score,
]


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__qualname__)
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda lp, y: (lp.exp(), y), "holds probabilities"),
        (lambda lp, y: (lp * 2 + 1, y), "log_softmax"),
        (lambda lp, y: (lp.masked_fill(torch.arange(len(lp))[:, None] == 3, float("nan")), y), "NaN in 1 of"),
        (lambda lp, y: (lp, y + 1), r"0\.\.4, got values from 1 to 5"),
        (lambda lp, y: (lp, y.masked_fill(y == 0, -1)), "left out with the mask"),
        (lambda lp, y: (lp, y[:-1]), "shape"),
        (lambda lp, y: (lp, y.double()), "integer class numbers"),
        (lambda lp, y: (lp[:0], y[:0]), "at least one node"),
    ],
    ids=["probabilities", "logits", "nan", "too large", "unlabelled", "length", "float labels", "empty"],
)
def test_wrong_input_is_refused(f, spoil, message):
    log_probs, y = spoil(*predictions(60))
    with pytest.raises(ValueError, match=message):
        f(log_probs, y)


def test_probability_zero_is_allowed_and_makes_nll_infinite():
    log_probs = torch.tensor([[1.0, 0.0], [0.5, 0.5]]).log()
    assert metrics.nll(log_probs, torch.tensor([1, 0])) == float("inf")
    assert metrics.ece(log_probs, torch.tensor([0, 0])) == pytest.approx(0.25)


@pytest.mark.parametrize("bins", [0, -1, 2.5, True])
def test_bins_must_be_a_positive_integer(bins):
    log_probs, y = predictions(60)
    with pytest.raises(ValueError, match="bins must be a positive integer"):
        metrics.ece(log_probs, y, bins)


def test_half_precision_is_accepted():
    log_probs, y = predictions(200)
    assert metrics.ece(log_probs.float(), y) == pytest.approx(metrics.ece(log_probs, y), abs=1e-3)


def test_a_mask_must_fit():
    log_probs, y = predictions(60)
    with pytest.raises(ValueError, match=r"mask must be a boolean tensor of shape \(60,\)"):
        metrics.evaluate(log_probs, y, torch.ones(59, dtype=torch.bool))


@pytest.mark.parametrize("C", [2, 7, 32, 33, 200])
def test_predictions_are_argmax(C):
    values = np.random.default_rng(0).integers(0, 5, size=(C, 400)).astype(np.float32)  # full of ties
    top, pred = first_largest(values)
    assert (pred == values.argmax(axis=0)).all()
    assert (pred == core.first_largest(torch.from_numpy(values)).numpy()).all()
    assert (top == values.max(axis=0)).all()


def test_the_first_class_wins_a_tie():
    log_probs = torch.tensor([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]]).log()
    assert read_chunk(log_probs, torch.tensor([1, 1])).right.tolist() == [False, True]
    assert metrics.accuracy(log_probs, torch.tensor([1, 1])) == 0.5
    assert metrics.ece(log_probs, torch.tensor([1, 1])) == pytest.approx(abs(0.5 - 0.4))


@pytest.mark.parametrize("bins", [1, 7, 10, 15, 20, 1000])
def test_fast_bins_are_the_slow_ones(bins):
    rng, edges = np.random.default_rng(bins), equal_width_edges(bins)
    near = np.concatenate([np.nextafter(edges.numpy(), side) for side in (-1, 2)]).clip(0, 1)
    conf = np.concatenate([rng.random(5000), edges.numpy(), near, [0.0, 1.0]])
    single = np.concatenate(
        [conf.astype(np.float32), *(np.nextafter(np.float32(edges), np.float32(s)) for s in (-1, 2))]
    )
    for values in (conf, single.clip(0, 1)):
        assert (equal_width_bin(values, edges) == bin_of(torch.from_numpy(values).double(), edges).numpy()).all()
    assert not len(equal_width_bin(conf[:0], edges))


def test_threads_change_nothing(monkeypatch):
    log_probs, y = predictions(5000, scale=0.7)
    alone = metrics.reliability(log_probs, y)
    monkeypatch.setattr(inputs, "CHUNK", 100)
    monkeypatch.setattr(inputs, "MANY", 2)
    shared = metrics.reliability(log_probs, y)
    torch.testing.assert_close(shared.gap, alone.gap)
    assert torch.equal(shared.count, alone.count)


def test_a_fault_in_a_late_chunk_is_found(monkeypatch):
    monkeypatch.setattr(inputs, "CHUNK", 100)
    log_probs, y = predictions(1000)
    broken = log_probs.clone()
    broken[950] += 1
    for many in (2, 1000):
        monkeypatch.setattr(inputs, "MANY", many)
        with pytest.raises(ValueError, match="log_softmax"):
            metrics.ece(broken, y)
        with pytest.raises(ValueError, match=r"got values from 0 to 9"):
            metrics.ece(log_probs, y.index_fill(0, torch.tensor([950]), 9))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8])
def test_any_integer_labels_will_do(dtype):
    log_probs, y = predictions(300)
    assert metrics.ece(log_probs, y.to(dtype)) == metrics.ece(log_probs, y)
