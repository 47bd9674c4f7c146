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
    labelled = torch.from_numpy(labels(p, time, rng))
    log_probs = torch.from_numpy(np.stack([1 - p, p], 1)).log()
    return log_probs, torch.where(labelled, y, torch.full_like(y, -1)), time, p


OCTOBER = np.datetime64("2026-10-01")
SELECTED = {
    "investigated cases": lambda p, t, rng: (rng.random(len(p)) < 4 * p) & (t < OCTOBER),
    "easy ones first": lambda p, t, rng: rng.random(len(p)) < 0.2 * (1 - p) ** 8,
    "selected by the score": lambda p, t, rng: rng.random(len(p)) < np.where(p > 0.2, 0.5, 0.05),
    "late": lambda p, t, rng: (rng.random(len(p)) < 0.1) & (t < OCTOBER),
    "strata": lambda p, t, rng: rng.random(len(p)) < np.where(p > 0.02, 0.25, 0.05),
}


@pytest.mark.slow_cases(
    "selected by the score-True",
    "late-False",
    "late-True",
    "easy ones first-False",
    "easy ones first-True",
    "investigated cases-True",
    "investigated cases-False",
    "strata-False",
    "strata-True",
)
@pytest.mark.parametrize("random_draw", [False, True])
@pytest.mark.parametrize("name", SELECTED)
def test_the_promise_is_refused(name, random_draw):
    log_probs, y, time, _ = fraud(SELECTED[name])
    with pytest.raises(NotARandomDraw, match="not drawn at random") as told:
        decide_rows(log_probs, y, Promise(0.5, positive="1", random_draw=random_draw), time=time)
    assert ("time lies around" if name == "late" else "mean ") in str(told.value)


@pytest.mark.slow
def test_declared_strata_are_accepted():
    log_probs, y, time, p = fraud(SELECTED["strata"])
    outcome = decide_rows(log_probs, y, Promise(0.5, positive="1", random_draw=True), time=time, strata=p > 0.02)
    assert outcome.decision.guaranteed


@pytest.mark.slow_cases("2", "1")
@pytest.mark.parametrize("seed", range(3))
def test_every_figure_beside_declared_strata_respects_them(seed):
    """Labels five times as dense where the probability is high: read as one draw, they show several times the members."""
    log_probs, y, _, p = fraud(SELECTED["strata"], seed)
    truth = fraud(lambda p, t, rng: np.ones(len(p), bool), seed)[1].numpy()
    outcome = decide_rows(log_probs, y, Promise(0.5, positive="1", random_draw=True), strata=p > 0.02)
    assert outcome.members.low <= truth[(y < 0).numpy()].sum() <= outcome.members.high
    assert outcome.members.low <= outcome.members.value <= outcome.members.high
    assert outcome.decision.recall is None
    wrong, curve = (p > 0.5) != (truth == 1), outcome.curve
    assert curve.low[-1] <= wrong.mean() <= curve.high[-1]
    assert curve.error[-1] == pytest.approx(wrong.mean(), abs=0.01)
    naive = (wrong & (y >= 0).numpy()).sum() / (y >= 0).sum()
    assert naive > curve.high[-1]


@pytest.mark.parametrize("gap", [None, float("nan")])
def test_strata_with_gaps_are_refused(gap):
    log_probs, y, _, p = fraud(SELECTED["strata"])
    strata = (p > 0.02).astype(object)
    strata[7] = gap
    with pytest.raises(ValueError, match="strata must hold a value for every node"):
        decide_rows(log_probs, y, Promise(), strata=strata)


@pytest.mark.parametrize("more", [{"budget": 50}, {"coverage": 0.9}])
def test_budgets_and_sets_refuse_strata(more):
    log_probs, y, _, p = fraud(SELECTED["strata"])
    with pytest.raises(ValueError, match="one simple random draw"):
        decide_rows(log_probs, y, Promise(), strata=p > 0.02, **more)


def test_random_labels_are_accepted():
    log_probs, y, time, _ = fraud(lambda p, t, rng: rng.random(len(p)) < 0.1)
    outcome = decide_rows(log_probs, y, Promise(0.5, positive="1", random_draw=True), time=time)
    assert outcome.decision.guaranteed
    assert outcome.members.low <= outcome.members.value <= outcome.members.high
    assert "This is a guarantee for the" in outcome.decision.sentence or outcome.decision.num_approved == 0


def refused(times, labelled, nodes=2000):
    """Share of random draws that are refused, with time and, for ``labelled="strata"``, with strata of their own rates."""
    count = 0
    for seed in range(times):
        rates = {"simple": lambda p, t, rng: rng.random(len(p)) < 0.15, "strata": SELECTED["strata"]}[labelled]
        log_probs, y, time, p = fraud(rates, seed, nodes)
        try:
            decide_rows(log_probs, y, Promise(0.1), time=time, strata=p > 0.02 if labelled == "strata" else None)
        except NotARandomDraw:
            count += 1
    return count / times


@pytest.mark.slow
@pytest.mark.parametrize("labelled", ["simple", "strata"])
def test_random_labels_are_refused_in_at_most_one_of_a_hundred_draws(labelled):
    assert refused(1000, labelled) <= 0.01


@pytest.mark.parametrize("labelled", ["simple", "strata"])
def test_a_few_random_draws_are_not_refused(labelled):
    assert refused(12, labelled) <= 1 / 12


def test_what_a_rare_class_loses_is_printed():
    log_probs, y, time, p = fraud(lambda p, t, rng: rng.random(len(p)) < 0.1)
    decision = decide_rows(log_probs, y, Promise(), time=time).decision
    assert not decision.guaranteed  # nobody has stated a random draw
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
    assert not outcome.members.low <= outcome.members.value <= outcome.members.high
    assert f"sum to {outcome.members.value:,.0f}" in outcome.members_text
