"""Alerts: intervals cover the truth, promises hold, and labels that cannot carry a promise get none."""

import re

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

from graphcal.alert_table import alerts, judge_labels
from graphcal.decisions.alerts import LabelSample
from graphcal.decisions.bounds import (
    fewest_errors,
    fewest_weighted,
    labels_for_power,
    most_errors,
    most_weighted,
    share_interval,
)
from graphcal.methods.positive_curves import after_shift, apply_curve, fit_curve
from graphcal.tables.score_column import duration
from graphcal.tables.two_classes import average_precision, choose_curve

RATES = (0.002, 0.01, 0.05, 0.2)


def scored_rows(rng, rate, rows=12_000):
    """Scores with a base rate of about ``rate``, as log-odds, and the truth."""
    odds = rng.normal(np.log(rate / (1 - rate)) - 1.1, 1.6, rows)
    return odds, rng.random(rows) < 1 / (1 + np.exp(-odds))


def simulated(rng, design, rate):
    """Arguments of `alerts` for one table, and the truth. Scores are those of a model with a class weight of 20."""
    odds, truth = scored_rows(rng, rate)
    n, more = len(odds), {}
    chance = np.full(n, 0.12)
    if design == "policy":
        cut = float(np.quantile(odds, 0.97))
        chance = np.where(odds > cut, 1.0, 0.1)
        more = {"reviewed_above": 1 / (1 + np.exp(-(cut + np.log(20)))), "random_share": 0.1}
    elif design == "chances":
        chance = np.clip(0.08 + 0.4 * (odds - odds.min()) / np.ptp(odds), 0.06, 0.6)
        more = {"inclusion": chance}
    elif design == "late":
        times = rng.random(n) * 100
        chance = np.where(times > 70, 0.0, 0.15)
        more = {"time": times, "label_delay": 30.0}
    elif design == "picked":
        chance = 0.02 + 0.9 / (1 + np.exp(-(odds - np.quantile(odds, 0.9))))
    drawn = rng.random(n) < chance
    if design == "random":
        drawn = np.zeros(n, bool)
        drawn[rng.permutation(n)[:1500]] = True
    scores = 1 / (1 + np.exp(-(odds + np.log(20))))
    return scores, np.where(drawn, truth, -1), more, truth


def tried(tables, seed=0, designs=("random", "policy", "chances", "late")):
    """Intervals of the marked thresholds with widths against Clopper and Pearson's, and the promises of every table."""
    rng, seen, made = np.random.default_rng(seed), [], []
    for k in range(tables):
        design, rate = designs[k % len(designs)], RATES[(k // len(designs)) % len(RATES)]
        scores, y, more, truth = simulated(rng, design, rate)
        if not (y == 1).any():
            continue
        capacity = int(rng.choice([60, 240, 1000]))
        queue = alerts(scores, y, kind="probs", capacity=capacity, max_missed=0.1, precisions=(0.5, 0.2), **more)
        ranked = np.flatnonzero(queue.rank)[np.argsort(queue.rank[queue.rank > 0])]
        positives = max(int(truth[ranked].sum()), 1)
        for row in queue.thresholds:
            if row.precision.low is None or not row.marks:
                continue
            hits = truth[ranked[: row.rows]]
            k_above = max(1, round(row.rows * (y >= 0).mean()))
            low, high = share_interval(round(row.precision.value * k_above), k_above, 0.95)
            covered = lambda one, value: one.low is None or one.low - 1e-9 <= value <= one.high + 1e-9  # noqa: E731
            seen.append(
                {
                    "design": design,
                    "precision": covered(row.precision, hits.mean()),
                    "recall": covered(row.recall, hits.sum() / positives),
                    "inside": row.precision.low <= row.precision.value <= row.precision.high,
                    "width": (row.precision.high - row.precision.low) / (high - low),
                }
            )
        made += [
            {
                "carries": queue.evidence.carries,
                "closed": queue.closing.rows > 0,
                "lost": truth[ranked[len(ranked) - queue.closing.rows :]].sum() > 0.1 * positives,
                "promised": promise.rows > 0,
                "broken": promise.rows > 0 and truth[ranked[: promise.rows]].mean() < promise.precision,
                "said": any(p.rows or p.labels_missing for p in (*queue.promises, queue.closing)),
            }
            for promise in queue.promises
        ]
    return seen, made


def share(seen, key):
    return np.mean([one[key] for one in seen])


def test_intervals_cover_and_promises_hold_in_a_sample_of_tables():
    seen, made = tried(24, seed=3)
    assert len(seen) > 30
    assert share(seen, "precision") >= 0.93
    assert share(seen, "recall") >= 0.93
    assert all(one["inside"] for one in seen)
    assert share(made, "broken") <= 0.05
    assert share(made, "lost") <= 0.05
    assert share(made, "closed") >= 0.2
    assert share(made, "promised") >= 0.1


@pytest.mark.slow
@pytest.mark.parametrize("design", ["random", "policy", "chances", "late"])
def test_intervals_cover_in_a_thousand_tables(design):
    seen, made = tried(250, seed=11, designs=(design,))
    assert share(seen, "precision") >= 0.93
    assert share(seen, "recall") >= 0.93
    assert share(made, "broken") <= 0.05
    assert share(made, "lost") <= 0.05
    assert share(made, "carries") >= 0.97
    assert np.median([one["width"] for one in seen]) <= 1.5
    if design in ("random", "late"):
        assert share(made, "said") >= 0.9


def test_labels_picked_by_the_score_carry_no_promise():
    rng = np.random.default_rng(5)
    for rate in (0.01, 0.05, 0.2):
        scores, y, more, _ = simulated(rng, "picked", rate)
        queue = alerts(scores, y, kind="probs", capacity=300, random_draw=True, **more)
        assert not queue.evidence.carries
        assert not queue.evidence.guarantee
        assert queue.promises == ()
        assert queue.closing.rows == 0
        assert (queue.decision != "close").all()
        assert all(row.precision.low is None and row.recall.low is None for row in queue.thresholds)


def test_wrong_chances_carry_no_promise():
    """Rows picked by the score, all chances too large or too small by the same factor, and chances of other rows."""
    rng = np.random.default_rng(6)
    scores, y, _, _ = simulated(rng, "picked", 0.05)
    queue = alerts(scores, y, kind="probs", capacity=300, inclusion=rng.uniform(0.1, 0.3, len(scores)))
    assert not queue.evidence.carries
    odds, truth = scored_rows(rng, 0.05, 6000)
    chance = rng.uniform(0.1, 0.4, 6000)
    y = np.where(rng.random(6000) < chance, truth, -1)
    for wrong in (0.7 * chance, 1.3 * chance, rng.permutation(chance)):
        queue = alerts(odds, y, kind="logits", capacity=300, precisions=(0.2,), inclusion=wrong)
        assert not queue.evidence.carries
        assert queue.promises == ()
        assert queue.closing.rows == 0
    assert alerts(odds, y, kind="logits", capacity=300, inclusion=chance).evidence.carries


def labels_of_policy(rng, share, stated, rows=3000):
    """Verdict on labels of all rows above a threshold and a share of the others."""
    odds, truth = scored_rows(rng, 0.05, rows)
    above = odds > np.quantile(odds, 0.97)
    y = np.where(rng.random(rows) < np.where(above, 1.0, share), truth, -1)
    return judge_labels(odds, y, np.where(above, 1.0, stated), np.zeros(rows, bool), None, "fraud", False)


def test_with_edges_known_chances_are_those_of_the_half_that_judges():
    rng, held = np.random.default_rng(25), []
    for k in range(4):
        odds, truth = scored_rows(rng, 0.1, 2000)
        chance = np.clip(0.12 + 0.4 * (odds - odds.min()) / np.ptp(odds), 0.12, 0.6)
        y = np.where(rng.random(2000) < chance, truth, -1)
        edges = rng.integers(0, 2000, (2, 2000))
        queue = alerts(odds, y, kind="logits", edges=edges, inclusion=chance, precisions=(0.5, 0.3), seed=k)
        rank = np.where(queue.rank > 0, queue.rank, len(odds) + 1)
        for row in queue.thresholds[-4:]:
            hits = truth[rank <= row.rows]
            held.append(row.precision.low - 1e-9 <= hits.mean() <= row.precision.high + 1e-9)
    assert np.mean(held) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("rows", [3000, 12_000])
def test_a_policy_that_was_followed_is_not_doubted(rows):
    rng = np.random.default_rng(23)
    assert np.mean([labels_of_policy(rng, 0.02, 0.02, rows).carries for _ in range(1000)]) >= 0.99


def test_a_rounded_share_is_named_in_a_large_table_and_passes_when_stated():
    seen = labels_of_policy(np.random.default_rng(24), 0.023, 0.02, 100_000)
    assert not seen.carries
    state = re.search(r"state (0\.02\d+)", seen.sentence).group(1)
    assert float(state) == pytest.approx(0.023, rel=0.05)
    assert labels_of_policy(np.random.default_rng(24), 0.023, float(state), 100_000).carries
    assert labels_of_policy(np.random.default_rng(24), 0.021, 0.02).carries


def test_a_policy_with_late_labels_carries_a_promise():
    """Every old row above the threshold has a label, no recent one: that is what the policy and the delay say together."""
    rng = np.random.default_rng(19)
    odds, truth = scored_rows(rng, 0.05)
    cut, time = float(np.quantile(odds, 0.95)), 100 * rng.random(len(odds))
    y = np.where((rng.random(len(odds)) < np.where(odds > cut, 1.0, 0.1)) & (time <= 70), truth, -1)
    options = {"reviewed_above": cut, "random_share": 0.1, "time": time, "label_delay": 30.0}
    queue = alerts(odds, y, kind="logits", capacity=300, **options)
    assert queue.evidence.carries
    sent = queue.decision == "review"
    assert queue.threshold.precision.low <= truth[sent].mean() <= queue.threshold.precision.high


def test_missing_labels_are_named_where_they_would_help():
    """23 labels of which half as many are wrong as allowed show 50 %; no rows are near 90 %."""
    rng = np.random.default_rng(20)
    prob = np.concatenate([np.full(200, 0.8), np.full(5000, 0.02)])
    truth, labelled = rng.random(5200) < prob, np.arange(5200) % 50 == 0
    sample = LabelSample(prob, prob, labelled, truth)
    assert 10 < sample.promised_precision(0.5).labels_missing < sample.promised_precision(0.5).among < 300
    far = sample.promised_precision(0.9)
    assert (far.rows, far.labels_missing, far.among) == (0, 0, 0)


def test_estimates_for_picked_labels_come_from_the_calibrated_probabilities():
    """The score alone picked the rows, so the curve transfers although the labels cannot carry an interval."""
    rng = np.random.default_rng(7)
    scores, y, more, truth = simulated(rng, "picked", 0.05)
    queue = alerts(scores, y, kind="probs", capacity=500, **more)
    sent = queue.decision == "review"
    assert queue.threshold.precision.value == pytest.approx(queue.probability[sent].mean(), abs=1e-6)
    assert queue.threshold.precision.value == pytest.approx(truth[sent].mean(), abs=0.08)


def test_the_smallest_plausible_number_is_the_complement_of_the_largest():
    rng = np.random.default_rng(0)
    K = rng.integers(2, 300, 200)
    k = rng.integers(0, K + 1)
    e = rng.binomial(k, 0.3)
    np.testing.assert_array_equal(fewest_errors(e, K, k, 0.04), K - most_errors(k - e, K, k, 0.04))


def test_precision_interval_by_hand():
    score, labelled = np.arange(20.0)[::-1], np.zeros(20, bool)
    labelled[[0, 2, 4, 6, 12, 18]] = True
    positive = np.zeros(20, bool)
    positive[[0, 2, 12]] = True
    (row,) = LabelSample(score, np.full(20, 0.3), labelled, positive).thresholds(
        [4]
    )  # of the first 8 rows, 4 are labelled
    plausible = [E for E in range(2, 7) if hypergeom.cdf(2, 8, E, 4) > 0.025 and hypergeom.sf(1, 8, E, 4) > 0.025]
    assert (row.precision.low, row.precision.high) == ((min(plausible) - 2) / 4, (max(plausible) - 2) / 4)


def test_rows_that_were_all_labelled_do_not_blur_the_others():
    rng = np.random.default_rng(1)
    score = rng.random(3000)
    truth = rng.random(3000) < score**3
    chance = np.where(score > 0.9, 1.0, 0.2)
    drawn = rng.random(3000) < chance
    rest = score <= 0.9
    with_policy = LabelSample(score, score**3, drawn, truth, chance).thresholds([100, 400])
    alone = LabelSample(score[rest], score[rest] ** 3, drawn[rest], truth[rest]).thresholds([100, 400])
    for one, other in zip(with_policy, alone):
        assert (one.precision.low, one.precision.high) == (other.precision.low, other.precision.high)
        assert (one.recall.low, one.recall.high) == (other.recall.low, other.recall.high)
        assert one.precision.value == pytest.approx(other.precision.value)


def test_weighted_bounds_hold_and_contain_the_weighted_estimate():
    rng, missed = np.random.default_rng(2), 0
    for _ in range(300):
        chance = rng.uniform(0.1, 0.9, 400)
        positive = rng.random(400) < 0.3
        drawn = chance[(rng.random(400) < chance) & positive]
        low, high = (bound(drawn, chance.min(), 400, 0.05) for bound in (fewest_weighted, most_weighted))
        missed += not low <= positive.sum() <= high
        assert low <= (1 / drawn).sum() <= high + 60
        assert high < 300  # says something
    assert missed / 300 <= 0.1


def test_weighted_intervals_are_nearly_as_narrow_as_random_labels_would_give():
    """Many chances that grow with the score, or have nothing to do with it; against Clopper and Pearson's interval."""
    rng, width, covered = np.random.default_rng(21), {True: [], False: []}, []
    for k in range(60):
        odds, truth = scored_rows(rng, RATES[1 + k % 3], 6000)
        chance = np.clip(0.08 + 0.4 * (odds - odds.min()) / np.ptp(odds), 0.06, 0.6)
        chance = chance if k % 2 else rng.permutation(chance)
        drawn = rng.random(6000) < chance
        sample = LabelSample(odds, 1 / (1 + np.exp(-odds)), drawn, truth, chance, seed=k)
        for row in sample.thresholds([100, 600]):
            end = sample.ends([row.rows])[0]
            hits = truth[sample.order[:end]][~sample.labelled[:end]]
            count = round(row.rows * drawn.mean())
            low, high = share_interval(round(hits.mean() * count), count, 0.95)
            width[bool(k % 2)].append((row.precision.high - row.precision.low) / (high - low))
            covered.append(row.precision.low <= hits.mean() <= row.precision.high)
    assert np.mean(covered) >= 0.93
    assert np.median(width[True]) <= 1.2
    assert np.median(width[False]) <= 1.75


def test_weighted_intervals_hold_where_positives_are_drawn_more_often():
    rng, covered = np.random.default_rng(22), []
    for k in range(40):
        odds, truth = scored_rows(rng, 0.1, 3000)
        chance = np.where(truth, rng.uniform(0.3, 0.6, 3000), rng.uniform(0.1, 0.4, 3000))
        sample = LabelSample(odds, 1 / (1 + np.exp(-odds)), rng.random(3000) < chance, truth, chance, seed=k)
        for row in sample.thresholds([200, 1000]):
            end = sample.ends([row.rows])[0]
            hits = truth[sample.order[:end]][~sample.labelled[:end]]
            covered.append(row.precision.low <= hits.mean() <= row.precision.high)
    assert np.mean(covered) >= 0.93


def test_chances_below_five_percent_carry_no_weighted_interval():
    rng = np.random.default_rng(3)
    chance = rng.uniform(0.01, 0.5, 2000)
    score, drawn = rng.random(2000), rng.random(2000) < chance
    (row,) = LabelSample(score, score, drawn, rng.random(2000) < score, chance).thresholds([500])
    assert row.precision.low is None
    assert row.recall.high is None


def test_closing_needs_enough_labelled_positives():
    """None of e labelled positives below the cut: (1 - 0.05)^e <= 0.05 takes 59 of them."""
    rng = np.random.default_rng(4)
    score = rng.random(40_000)
    truth = score > 0.9
    for positives, can in ((40, False), (120, True)):
        drawn = np.zeros(40_000, bool)
        drawn[rng.permutation(np.flatnonzero(truth))[:positives]] = True
        drawn[rng.permutation(np.flatnonzero(~truth))[: 9 * positives]] = True
        closing = LabelSample(score, truth.astype(float), drawn, truth).closing(0.05)
        assert (closing.rows > 0) == can
        assert (closing.labels_missing > 0) == (not can)


def test_rows_younger_than_the_delay_are_no_negatives():
    rng = np.random.default_rng(8)
    odds, truth = scored_rows(rng, 0.05)
    day = rng.integers(0, 100, len(odds))
    y = np.where(rng.random(len(odds)) < 0.2, truth & (day <= 70), -1)  # no positive label has arrived for recent rows
    times = np.datetime64("2026-01-01") + day.astype("timedelta64[D]")
    naive = alerts(odds, y, kind="logits", capacity=300)
    late = alerts(odds, y, kind="logits", capacity=300, time=times, label_delay="30d")
    young = day > 69
    assert (late.decision[young] != "labelled").all()
    sent = late.decision == "review"
    assert late.threshold.precision.low <= truth[sent].mean() <= late.threshold.precision.high
    assert late.expected / (late.rank > 0).sum() > 1.2 * naive.expected / (naive.rank > 0).sum()


def test_a_false_policy_is_refused():
    rng = np.random.default_rng(9)
    odds, truth = scored_rows(rng, 0.05)
    y = np.where(rng.random(len(odds)) < 0.2, truth, -1)
    with pytest.raises(ValueError, match="every row with a score above 0 is labelled"):
        alerts(odds, y, kind="logits", reviewed_above=0.0, random_share=0.2)
    with pytest.raises(ValueError, match="every such row is labelled"):
        alerts(odds, y, kind="logits", inclusion=np.ones(len(odds)))


@pytest.mark.parametrize(
    ("name", "true"), [("shift", (-2.0, 1.0, 0.0)), ("platt", (-1.0, 0.6, 0.0)), ("quadratic", (-1.0, 1.2, 0.05))]
)
def test_curves_find_the_truth_with_weights(name, true):
    """Rows are drawn by their score with known chances; weighting by 1 / chance keeps the curve."""
    rng = np.random.default_rng(10)
    odds = rng.normal(-1, 1.5, 60_000)
    p = 1 / (1 + np.exp(-(true[0] + true[1] * odds + true[2] * odds**2)))
    chance = np.clip(0.1 + 0.5 * p, 0, 1)
    drawn = rng.random(60_000) < chance
    y = rng.random(60_000) < p
    curve = fit_curve(name, odds[drawn], y[drawn], 1 / chance[drawn], (-5.0, 4.0))
    np.testing.assert_allclose(curve.weights.numpy()[:3], true, atol=0.08)


def test_weighted_isotonic_is_scikit_learns():
    from sklearn.isotonic import IsotonicRegression

    rng = np.random.default_rng(11)
    odds = np.round(rng.normal(0, 2, 500), 1)
    y, weight = rng.random(500) < 1 / (1 + np.exp(-odds)), rng.uniform(0.2, 3, 500)
    expected = IsotonicRegression(out_of_bounds="clip").fit(odds, y, sample_weight=weight).predict(odds)
    np.testing.assert_allclose(apply_curve(fit_curve("isotonic", odds, y, weight, (-9, 9)), odds), expected, atol=1e-6)


def test_a_falling_curve_is_no_candidate():
    rng = np.random.default_rng(12)
    odds = rng.normal(0, 2, 2000)
    y = rng.random(2000) < 1 / (1 + np.exp(-(odds - odds**2)))
    assert fit_curve("quadratic", odds, y, np.ones(2000), (-6, 6)) is None
    with pytest.raises(ValueError, match="Higher scores"):
        choose_curve(odds, rng.random(2000) < 1 / (1 + np.exp(3 * odds)), np.ones(2000), (-6, 6), probabilities=False)


@pytest.mark.parametrize("name", ["shift", "beta", "isotonic"])
def test_a_shift_before_the_curve(name):
    rng = np.random.default_rng(13)
    odds = rng.normal(0, 1.5, 800)
    curve = fit_curve(name, odds, rng.random(800) < 1 / (1 + np.exp(-odds)), np.ones(800), (-6, 6))
    near = 1e-3 if name == "isotonic" else 1e-6  # between its knots isotonic regression is linear in the probability
    np.testing.assert_allclose(apply_curve(after_shift(curve, -1.5), odds), apply_curve(curve, odds - 1.5), atol=near)


def test_class_weights_are_recognised_and_undone():
    rng = np.random.default_rng(14)
    odds, truth = scored_rows(rng, 0.02, 40_000)
    drawn = rng.random(40_000) < 0.2
    queue = alerts(1 / (1 + np.exp(-(odds + np.log(50)))), np.where(drawn, truth, -1), kind="probs")
    assert queue.choice.class_weight == pytest.approx(50, rel=0.3)
    assert queue.probability.mean() == pytest.approx(truth.mean(), rel=0.15)
    given = alerts(1 / (1 + np.exp(-(odds + np.log(50)))), np.where(drawn, truth, -1), kind="probs", class_weight=50)
    assert given.choice.class_weight is None
    assert given.probability.mean() == pytest.approx(truth.mean(), rel=0.15)


def test_average_precision_is_scikit_learns():
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(15)
    score, y, weight = np.round(rng.random(400), 2), rng.random(400) < 0.2, rng.uniform(0.5, 2, 400)
    assert average_precision(score, y, weight) == pytest.approx(average_precision_score(y, score, sample_weight=weight))


def test_lowest_cost_sends_rows_above_the_ratio_of_costs():
    rng = np.random.default_rng(16)
    odds, truth = scored_rows(rng, 0.05)
    queue = alerts(
        odds, np.where(rng.random(len(odds)) < 0.2, truth, -1), kind="logits", cost_alert=1.0, cost_miss=10.0
    )
    sent = queue.decision == "review"
    assert queue.probability[sent].min() == pytest.approx(0.1, abs=0.05)
    assert queue.threshold.cost == min(row.cost for row in queue.thresholds)
    assert queue.threshold.marks[0] == "lowest cost"


def test_needed_labels_reach_the_power_and_one_less_does_not():
    n = labels_for_power(0.05, true_share=0.5)

    def power(n):
        c = binom.ppf(0.05, n, 0.05)
        c -= binom.cdf(c, n, 0.05) > 0.05
        return binom.cdf(c, n, 0.025)

    assert power(n) >= 0.8
    assert power(n - 1) < 0.8
    assert n == pytest.approx(362, abs=5)


@pytest.mark.slow
def test_windows_hold_their_truth_unless_they_announce_drift():
    rng, inside, windows = np.random.default_rng(17), 0, 0
    for k in range(6):
        odds, truth = scored_rows(rng, 0.05)
        day = rng.integers(0, 180, len(odds))
        if k % 2:  # in the last month the scores rise without more positives
            odds = odds + 1.5 * (day >= 150)
        times = np.datetime64("2026-01-01") + day.astype("timedelta64[D]")
        y = np.where((rng.random(len(odds)) < 0.25) & (day < 150), truth, -1)
        queue = alerts(odds, y, kind="logits", capacity=600, time=times, fit_until="2026-05-30", window="month")
        month = times.astype("datetime64[M]").astype(str)
        assert bool(queue.windows[-1].drift) == bool(k % 2)
        assert queue.evidence.carries == (not k % 2)
        for one in queue.windows:
            rows = (queue.rank > 0) & (month == one.name)
            assert one.rows == rows.sum()
            if queue.evidence.carries and not one.drift and one.precision is not None:
                sent = rows & (queue.decision == "review")
                windows += 2
                inside += one.precision.low <= truth[sent].mean() <= one.precision.high
                inside += one.expected.low <= truth[rows].sum() <= one.expected.high
    assert windows >= 30
    assert inside / windows >= 0.9


def test_spans_of_time():
    assert duration("30d") == np.timedelta64(30, "D")
    with pytest.raises(ValueError, match="time span 'soon'"):
        duration("soon")


def test_graph_scaling_is_right_for_rows_drawn_with_different_chances():
    """Labels come from a channel with more positives, which scores and edges do not tell; their rate is that of all rows."""
    rng = np.random.default_rng(18)
    odds, _ = scored_rows(rng, 0.1, 4000)
    channel = rng.random(4000) < 0.3
    truth = rng.random(4000) < 1 / (1 + np.exp(-(odds + np.where(channel, 2.0, -1.0))))
    groups = [np.flatnonzero(truth), np.arange(4000)]
    ends = [np.concatenate([rng.choice(rows, n) for rows, n in zip(groups, (300, 4000))]) for _ in range(2)]
    edges = np.stack([np.concatenate(ends), np.concatenate(ends[::-1])])
    chance = np.where(channel, 0.8, 0.2)
    y = np.where(rng.random(4000) < chance, truth, -1)
    assert truth[y >= 0].mean() > 1.4 * truth.mean()
    queue = alerts(odds, y, kind="logits", edges=edges, inclusion=chance, capacity=100)
    assert queue.choice.name == "graph-scaling"
    assert queue.probability.mean() == pytest.approx(truth.mean(), rel=0.15)
