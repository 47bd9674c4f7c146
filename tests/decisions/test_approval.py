"""`decide`: masks kept apart, terms checked, words that promise no more than was stated."""

import numpy as np
import pytest
import torch

from graphcal.decisions.approval import decide, recall_of
from graphcal.decisions.decision import class_number


def honest(nodes=4000, seed=0):
    """Two classes; the first is as probable as it says."""
    g = torch.Generator().manual_seed(seed)
    conf = 1 - 0.5 * torch.rand(nodes, generator=g, dtype=torch.double) ** 3
    y = (torch.rand(nodes, generator=g, dtype=torch.double) > conf).long()
    return torch.stack([conf, 1 - conf], dim=1).log(), y, torch.arange(nodes) < 500


def test_the_approved_nodes_are_the_confident_unlabelled_ones():
    log_probs, y, certify = honest()
    decision = decide(log_probs, y, certify=certify, random_draw=True)
    conf = log_probs.exp().max(1).values
    assert torch.equal(decision.approved, ~certify & (conf >= decision.threshold))
    assert torch.equal(decision.review, ~certify & ~decision.approved)
    assert decision.nodes == 3500
    assert decision.coverage == decision.num_approved / 3500
    assert decision.errors_at_most == int(0.05 * decision.num_approved)
    assert int((y[decision.approved] != 0).sum()) <= decision.errors_at_most
    above = certify & (conf >= decision.threshold)
    assert (decision.labelled_above, decision.errors_seen) == (int(above.sum()), int((above & (y != 0)).sum()))


def test_labels_outside_certification_are_not_read():
    log_probs, y, certify = honest()
    hidden = torch.where(certify, y, torch.full_like(y, -1))
    first, second = (decide(log_probs, labels, certify=certify) for labels in (y, hidden))
    assert torch.equal(first.approved, second.approved)


def test_the_pool_may_hold_the_certification_nodes_or_not():
    log_probs, y, certify = honest()
    rest = torch.arange(4000) >= 2000
    apart, joined = (decide(log_probs, y, certify=certify, pool=pool) for pool in (rest, rest | certify))
    assert torch.equal(apart.approved, joined.approved)
    assert apart.nodes == 2000
    assert not apart.approved[:2000].any()


def test_held_nodes_are_never_approved():
    log_probs, y, certify = honest()
    held = torch.arange(4000) % 3 == 0
    decision = decide(log_probs, y, certify=certify, held=held)
    assert not (decision.approved & held).any()
    assert (decision.review & held).sum() == (held & ~certify).sum()
    assert decision.num_approved > 0


def test_the_three_promises_are_ordered_and_worded():
    log_probs, y, certify = honest()
    pool, future, average = (
        decide(log_probs, y, certify=certify, promise=p, random_draw=True) for p in ("pool", "future", "average")
    )
    assert 0 < pool.num_approved <= future.num_approved < average.num_approved
    assert "future nodes" in future.sentence
    assert "on average" in average.sentence
    assert "95 % certain" in pool.sentence
    assert "95 % certain" not in average.sentence


def test_guarantee_is_said_only_when_a_random_draw_was_stated():
    log_probs, y, certify = honest()
    stated, silent = (decide(log_probs, y, certify=certify, random_draw=r) for r in (True, False))
    assert "guarantee" in stated.sentence
    assert stated.to_dict()["guarantee"] is True
    assert "guarantee" not in silent.sentence
    assert "estimate" in silent.sentence
    assert silent.to_dict()["guarantee"] is False
    assert torch.equal(stated.approved, silent.approved)


def test_the_sentence_counts_what_the_masks_hold():
    log_probs, y, certify = honest()
    d = decide(log_probs, y, certify=certify, random_draw=True)
    assert d.sentence.startswith(
        f"{d.num_approved:,} of 3,500 nodes can be decided automatically with at most 5 % errors, 95 % certain; "
        f"{3500 - d.num_approved:,} need a person"
    )
    few = decide(log_probs, y, certify=torch.arange(4000) < 60, random_draw=True)
    assert few.num_approved == 0
    assert few.threshold is None
    assert few.sentence.startswith("No node can be decided automatically")
    assert "more random labels would decide about" in few.sentence
    assert "guarantee" not in few.sentence


def test_a_class_is_selected_with_a_precision():
    g = torch.Generator().manual_seed(1)
    fraud = 0.02 + 0.97 * torch.rand(6000, generator=g, dtype=torch.double) ** 6
    y = (torch.rand(6000, generator=g, dtype=torch.double) < fraud).long()
    log_probs = torch.stack([1 - fraud, fraud], dim=1).log()
    certify = torch.arange(6000) < 2000
    d = decide(
        log_probs, y, certify=certify, max_error=0.2, positive="fraud", names=["fine", "fraud"], random_draw=True
    )
    assert d.num_approved > 50
    assert float((y[d.approved] == 1).double().mean()) >= 0.8
    true_recall = float((d.approved & (y == 1)).sum() / ((y == 1) & ~certify).sum())
    assert d.recall.low <= true_recall <= d.recall.high
    assert "taken as fraud with a precision of at least 80 %" in d.sentence
    assert "of the class" in d.sentence


def test_recall_counts_labelled_members():
    members, above = np.array([1, 1, 1, 1, 0], bool), np.array([1, 1, 1, 0, 1], bool)
    recall = recall_of(members, above, 0.95)
    assert recall.value == 0.75
    assert recall.low < 0.75 < recall.high
    assert recall_of(~np.ones(3, bool), np.ones(3, bool), 0.9).high == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"certify": torch.arange(4000) < 58}, "58 certification nodes cannot certify .* at least 59 .* 299 for 1 %"),
        ({"max_error": 0.01, "certify": torch.arange(4000) < 298}, "298 certification nodes .* at least 299"),
        ({"pool": torch.arange(4000) < 500}, "the pool has no unlabelled node: all its 500 nodes certify"),
        ({"pool": torch.arange(4000) > 250}, "certify and pool overlap in 249 of 500 certification nodes"),
        ({"fitted": torch.arange(4000) < 10}, "certify shares 10 nodes .* the same labels may not do two jobs"),
        ({"fitted": torch.arange(4000) > 3990, "pool": torch.arange(4000) > 499}, "pool shares 9 nodes with the fitting"),
        ({"positive": "fraud"}, "unknown class 'fraud'; the classes are 0, 1"),
        ({"positive": 2}, r"unknown class 2; the classes are 0\.\.1"),
        ({"max_error": 5}, "max_error must lie between 0 and 1"),
        ({"promise": "always"}, "promise must be one of pool, future, average, got 'always'"),
        ({"certify": torch.zeros(4000, dtype=torch.bool)}, "certify selects no node"),
        ({"certify": torch.arange(400) < 100}, "certify has 400 entries, but there are 4000 nodes"),
        ({"promise": "average", "strata": torch.zeros(4000, dtype=torch.long)}, "needs one simple random draw"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(change, message):
    log_probs, y, certify = honest()
    with pytest.raises(ValueError, match=message):
        decide(log_probs, y, **{"certify": certify, **change})


def test_unlabelled_certification_nodes_are_refused():
    log_probs, y, certify = honest()
    y[7] = -1
    with pytest.raises(ValueError, match="certify selects 1 nodes without a label .*first: node 7 has -1"):
        decide(log_probs, y, certify=certify)
    with pytest.raises(ValueError, match="y must hold 4000 integer class numbers"):
        decide(log_probs, y.double(), certify=certify)


def test_classes_by_name_and_number():
    assert class_number("b", 2, ["a", "b"]) == 1
    assert class_number("1", 2, None) == 1
    assert class_number(None, 2, None) is None
