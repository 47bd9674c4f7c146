import numpy as np
import pytest
import torch
from simulated_draws import draws

from graphcal.decisions import review_queue


def rows(conf, wrong):
    """Two classes, the first predicted where confidence is at least a half."""
    p = torch.from_numpy(np.clip(conf, 0.5, 1 - 1e-9))
    return torch.stack([p, 1 - p], 1).log(), torch.from_numpy(wrong.astype(np.int64))


@pytest.mark.slow
@pytest.mark.parametrize("positive", [None, 1])
def test_intervals_hold_what_is_found(positive):
    """By simulation: 90 % intervals of the number found and of the recall."""
    inside, times = np.zeros(2), 250
    for conf, wrong, certify in draws("two groups", "over-confident", 600, 200, times):
        log_probs, y = rows(conf, wrong)
        queue = review_queue(log_probs, y, torch.from_numpy(certify), 100, positive=positive, certainty=0.9)
        hits = int((y[queue.nodes] == 1).sum())
        total = int(((y == 1) & ~torch.from_numpy(certify)).sum())
        inside += [queue.hits.low <= hits <= queue.hits.high, queue.recall.low <= hits / total <= queue.recall.high]
    assert (inside / times >= 0.9 - 3.5 * np.sqrt(0.09 / times)).all()


def test_the_least_confident_come_first():
    conf = torch.tensor([0.9, 0.6, 0.8, 0.55, 0.7], dtype=torch.double)
    log_probs = torch.stack([conf, 1 - conf], 1).log()
    y, certify = torch.tensor([0, 0, 0, -1, -1]), torch.tensor([1, 1, 0, 0, 0]).bool()
    queue = review_queue(log_probs, torch.where(certify, y, -1), certify, 2)
    assert queue.nodes.tolist() == [3, 4]
    assert queue.hits.value == pytest.approx(0.75)
    assert queue.precision.value == pytest.approx(0.375)
    members = review_queue(log_probs, torch.where(certify, y, -1), certify, 2, positive=0)
    assert members.nodes.tolist() == [2, 4]
    assert members.hits.value == pytest.approx(1.5)
    assert "nodes of class 0" in members.sentence
    assert "estimate" in members.sentence
    with pytest.raises(ValueError, match=r"budget must lie in 1\.\.3"):
        review_queue(log_probs, y, certify, 4)


def test_labelled_nodes_at_the_cut_count():
    """Ties at the cut: a labelled node as worthy as the last look is evidence about it."""
    conf = torch.full((60,), 0.7, dtype=torch.double)
    y, certify = torch.zeros(60, dtype=torch.long), torch.arange(60) < 20
    queue = review_queue(torch.stack([conf, 1 - conf], 1).log(), y, certify, 10)
    assert queue.recall is None
    assert queue.hits.high < 10  # 20 right nodes of equal confidence; without them nothing would be said


def test_the_estimate_lies_in_its_interval():
    """Probabilities that expect 8 errors where the labels show none: the labels win, and the sum is named."""
    rng = np.random.default_rng(0)
    conf = torch.from_numpy(rng.uniform(0.55, 0.65, 2000))
    y, certify = torch.zeros(2000, dtype=torch.long), torch.from_numpy(rng.permutation(2000) < 500)
    queue = review_queue(torch.stack([conf, 1 - conf], 1).log(), y, certify, 400)
    assert queue.hits.low <= queue.hits.value <= queue.hits.high < queue.expected
    assert "Their probabilities sum to" in queue.sentence
