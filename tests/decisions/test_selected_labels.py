"""Labels that were not drawn at random carry no promise: five tables, with what was done to their labels."""

import numpy as np
import pytest
import torch

from graphcal.decisions import Promise
from graphcal.decisions.masks import NotARandomDraw
from graphcal.decisions.outcomes import decide_rows


def fraud(labels, seed=0, nodes=20_000):
    """Two classes, 4 % positive, calibrated probabilities; the labels that ``labels`` chooses by probability and time."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.4, 9.0, nodes)
    y = torch.from_numpy((rng.random(nodes) < p).astype(np.int64))
    time = np.datetime64("2026-05-01") + (rng.random(nodes) * 180 * 86400).astype("timedelta64[s]")
    chosen = torch.from_numpy(labels(p, time, rng))
    log_probs = torch.from_numpy(np.stack([1 - p, p], 1)).log()
    return log_probs, torch.where(chosen, y, torch.full_like(y, -1)), time, p


OCTOBER = np.datetime64("2026-10-01")
SELECTED = {
    "investigated cases": lambda p, t, rng: (rng.random(len(p)) < 4 * p) & (t < OCTOBER),
    "easy ones first": lambda p, t, rng: rng.random(len(p)) < 0.2 * (1 - p) ** 8,
    "selected by the score": lambda p, t, rng: rng.random(len(p)) < np.where(p > 0.2, 0.5, 0.05),
    "late": lambda p, t, rng: (rng.random(len(p)) < 0.1) & (t < OCTOBER),
    "strata": lambda p, t, rng: rng.random(len(p)) < np.where(p > 0.02, 0.25, 0.05),
}


@pytest.mark.parametrize("random_draw", [False, True])
@pytest.mark.parametrize("name", SELECTED)
def test_the_promise_is_refused(name, random_draw):
    log_probs, y, time, _ = fraud(SELECTED[name])
    with pytest.raises(
        NotARandomDraw, match="the labelled rows were not drawn at random from the rows to decide"
    ) as told:
        decide_rows(log_probs, y, Promise(0.5, positive="1", random_draw=random_draw), time=time)
    assert "nothing is promised. Label rows drawn at random" in str(told.value)
    assert ("time lies around" if name == "late" else "mean ") in str(told.value)


def test_declared_strata_are_accepted():
    log_probs, y, time, p = fraud(SELECTED["strata"])
    outcome = decide_rows(log_probs, y, Promise(0.5, positive="1", random_draw=True), time=time, strata=p > 0.02)
    assert outcome.decision.guaranteed


def test_random_labels_are_accepted():
    log_probs, y, time, _ = fraud(lambda p, t, rng: rng.random(len(p)) < 0.1)
    outcome = decide_rows(log_probs, y, Promise(0.5, positive="1", random_draw=True), time=time)
    assert outcome.decision.guaranteed
    assert outcome.members.low <= outcome.members.value <= outcome.members.high
    assert "This is a guarantee for the" in outcome.decision.sentence or outcome.decision.num_approved == 0


def test_what_a_rare_class_loses_is_printed():
    log_probs, y, time, p = fraud(lambda p, t, rng: rng.random(len(p)) < 0.1)
    decision = decide_rows(log_probs, y, Promise(), time=time).decision
    ok, positive = decision.classes
    approved = decision.approved.numpy()
    assert (ok.name, positive.name) == ("class 0", "class 1")
    assert ok.decided == int((approved & (p < 0.5)).sum())
    assert positive.missed == pytest.approx(p[approved & (p < 0.5)].sum())
    assert positive.expected == pytest.approx(p[(y < 0).numpy()].sum())
    assert positive.missed > 0.2 * positive.expected
    assert f"of about {positive.expected:,.0f} members {positive.missed:,.0f} (" in positive.text
    assert "is no protection for class 1" in decision.warnings[0]


def test_several_balanced_classes_need_no_table():
    g = torch.Generator().manual_seed(0)
    z = 3 * torch.randn(2000, 4, generator=g)
    y = torch.multinomial(z.softmax(1), 1, generator=g)[:, 0]
    y[500:] = -1
    assert decide_rows(z.log_softmax(1), y, Promise()).decision.classes == ()


def test_all_rows_labelled_is_a_backtest_without_a_guarantee():
    log_probs, y, _, _ = fraud(lambda p, t, rng: np.ones(len(p), bool))
    decision = decide_rows(log_probs, y, Promise(random_draw=True), share=0.5).decision
    assert not decision.guaranteed
    assert decision.to_dict()["guarantee"] is False
    assert "This is a backtest" in decision.sentence


def test_probabilities_that_contradict_the_labels_are_named():
    _, y, _, p = fraud(lambda p, t, rng: rng.random(len(p)) < 0.1)
    raw = torch.from_numpy(np.stack([1 - p**0.3, p**0.3], 1)).log()
    outcome = decide_rows(raw, y, Promise(0.9, positive="1"))
    assert "they are not calibrated" in outcome.members_text
