"""The certified threshold: the largest set of confident nodes of which at most a share r is wrong, with certainty 1 - δ.

Sets are nested: S(t) holds the nodes of the pool with confidence at least t; K nodes, k of them labelled, e of those wrong.
    certified at t        U(t) - e(t) <= r (K(t) - k(t))             realised errors among the unlabelled nodes (`bounds`)
                          Beta⁻¹(1 - δ; e + 1, k - e) <= r           future nodes of the same source
Many thresholds are tested in an order that is fixed without the labels, until the first failure (fixed-sequence testing,
Angelopoulos et al. 2021, arXiv:2110.01052). For future nodes the hypotheses "a share above r of the source is wrong" are fixed,
so the walk keeps the level δ of one test. For realised errors a single set is exact, but which sets break the target depends on
the draw (E - e is random), so the theorem does not cover the walk: that it keeps the level is verified by simulation, in 27
settings built to break it (`tests/decisions/test_thresholds.py`; broken in at most 4 % of the draws at δ = 5 %).

The order comes from confidence. With mean uncertainty u(t) = Σ (1 - conf) / K over the pool and n of N nodes labelled, about
k' = n K / N labelled nodes will lie above t and e' = k' u of them be wrong. The walk starts where the predicted bound
Beta⁻¹(1 - δ; e' + 1, k' - e') is furthest below r, and goes to larger sets. Nothing here depends on which nodes were drawn.

Strata.  Nodes drawn at random within H strata of known size: a bound per stratum at level δ / H, added (union bound).
    realised   Σ_h (U_h - e_h) <= r Σ_h (K_h - k_h)            future   Σ_h (K_h / K) Beta⁻¹(1 - δ/H; e_h + 1, k_h - e_h) <= r

Random arm.  Labels of other origin, o of them in the set and w of those wrong, take part in no test. The arm was drawn from all
nodes (U is about K nodes, and U - e - w <= r (K - k - o)), or from those that had no other label (U' is about K - o of them, and
U' - e <= r (K - k - o)). A set is certified only if both tests certify it, so the promise holds for either. The other labels
replace 1 - conf in the order by the error rate they show at that confidence (isotonic regression).

Known chances.  With an inclusion probability of at least 0.05 for every node of the set, the weighted bound of `bounds` counts
all its errors; labelled ones are taken off. Beside a random arm, each has half of the risk and either may certify. The order
takes k' = K min π.

What would more labels do?  `plan_labels` repeats the walk with the labels one would expect: a plan, not a promise.

On average.  Conformal selection (Jin & Candès 2023, arXiv:2210.01408). With n labelled and m unlabelled nodes of a random draw,
    p_j = (1 + #{i labelled : wrong_i, conf_i >= conf_j}) / (n + 1)
and Benjamini & Hochberg's step at level q over the m unlabelled nodes. That is the lowest threshold t with
    (m / (n + 1)) (1 + W(t)) / S(t) <= q,          W wrong labelled nodes, S unlabelled nodes with conf >= t.
The mean over draws of the share of wrong nodes is at most q. A single draw exceeds q in about half of the cases: this is the
weaker promise, for those who decide often.

Risk curve.  `risk_curve` shows the errors of ever larger parts of the pool with Clopper & Pearson's interval of each part alone,
and how many nodes each error target on its own would certify.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import betaincinv
from torch import Tensor

from graphcal.decisions.bounds import (
    LEAST_INCLUSION,
    Array,
    fewest_weighted,
    future_certified,
    most_errors,
    most_weighted,
    realised_certified,
)
from graphcal.decisions.decision import Plan
from graphcal.decisions.masks import Draw, check_draw
from graphcal.metrics.diagram import clopper_pearson

STEPS = 100  # sets that are tested, of equally many nodes more each
FEWEST_OTHERS = 30  # labels of other origin that choose the order
TARGETS = (0.005, *(k / 100 for k in range(1, 31)))  # of the risk curve


@dataclass(frozen=True, eq=False)
class WeightedSets:
    """Labels with known inclusion probabilities in each of T nested sets."""

    inclusion: Array  # (n,) of the labelled nodes, by falling confidence
    wrong: Array  # (n,) bool
    count: Array  # (T,) labelled nodes in the set
    least: Array  # (T,) smallest inclusion probability of the set
    typical: Array  # (T,) mean inclusion probability of the set

    def bound(self, end: Callable[..., int], t: int, nodes: int, risk: float) -> int:
        """`most_weighted` or `fewest_weighted` of the errors of set t, which has so many nodes."""
        inside = slice(self.count[t])
        drawn = self.inclusion[inside][self.wrong[inside]]
        return end(drawn, float(self.least[t]), nodes, risk, float(self.typical[t]))


@dataclass(frozen=True, eq=False)
class NestedSets:
    """Sets of ever more nodes by falling confidence, counted in each of H strata."""

    threshold: Array  # (T,) falling
    nodes: Array  # (H, T) K
    labelled: Array  # (H, T) k
    wrong: Array  # (H, T) e
    uncertainty: Array  # (T,) mean of 1 - conf over the set; beside a random arm, mean error rate expected of the rest
    sampled: float  # share of the pool that is labelled
    others: Array | None = None  # (T,) o, nodes labelled beside a random arm
    others_wrong: Array | None = None  # (T,) w
    weighted: WeightedSets | None = None

    @property
    def unlabelled(self) -> Array:  # (T,)
        rest = (self.nodes - self.labelled).sum(axis=0)
        return np.asarray(rest if self.others is None else rest - self.others)

    @property
    def by_chance_only(self) -> bool:
        """Return whether only inclusion probabilities are known of the draw."""
        return self.weighted is not None and self.others is None


def nested_sets(
    conf: Array,
    wrong: Array,
    certify: Array,
    pool: Array,
    strata: Array | None = None,
    held: Array | None = None,
    steps: int = STEPS,
    others: Array | None = None,
    inclusion: Array | None = None,
) -> NestedSets:
    """The sets of a pool (which holds the labelled nodes), ``held`` nodes in none. ``wrong`` is read at labelled nodes only."""
    inside = pool if held is None else pool & ~held
    ordered = np.flatnonzero(inside)
    ordered = ordered[np.argsort(-conf[ordered], kind="stable")]
    score = conf[ordered]
    number = np.zeros(len(ordered), np.int64) if strata is None else np.unique(strata[ordered], return_inverse=True)[1]
    ends = np.unique(np.ceil(np.linspace(0, len(ordered), steps + 1)[1:]).astype(np.int64))
    threshold = np.unique(score[ends - 1])[::-1]  # a threshold takes all nodes of equal confidence
    ends = np.searchsorted(-score, -threshold, side="right")  # (T,) nodes with conf >= t
    drawn = certify[ordered]
    off = np.zeros(len(ordered), bool)
    off[drawn] = wrong[ordered[drawn]]

    def counted(flag: Array) -> Array:  # (H, T)
        per = [np.cumsum(flag & (number == h))[ends - 1] for h in range(number.max(initial=0) + 1)]
        return np.stack(per).astype(np.int64)

    doubt, extra, extra_wrong, weighted, labelled = 1 - score, None, None, None, drawn
    if others is not None:
        beside = others[ordered]
        doubt = expected_errors(score, beside, wrong[ordered])
        extra, extra_wrong = (np.cumsum(flag)[ends - 1] for flag in (beside, beside & wrong[ordered]))
        labelled = drawn | beside
    if inclusion is not None:
        chance = inclusion[ordered]
        count, least = np.cumsum(labelled)[ends - 1], np.minimum.accumulate(chance)[ends - 1]
        typical = np.cumsum(chance)[ends - 1] / ends
        weighted = WeightedSets(chance[labelled], wrong[ordered[labelled]], count, least, typical)
    counts = np.zeros(len(ordered), bool) if others is None else beside
    uncertainty = np.cumsum(np.where(counts, 0.0, doubt))[ends - 1] / np.maximum(np.cumsum(~counts)[ends - 1], 1)
    share = certify.sum() / max(pool.sum(), 1)
    return NestedSets(
        threshold, counted(np.ones(len(ordered), bool)), counted(drawn), counted(off), uncertainty, float(share),
        extra, extra_wrong, weighted,
    )  # fmt: skip


def expected_errors(score: Array, labelled: Array, wrong: Array) -> Array:
    """Error rate (n,) at each score by the labelled nodes, falling with the score; 1 - score where they are few or elsewhere."""
    seen = wrong[labelled]
    if len(seen) < FEWEST_OTHERS:
        return np.asarray(1 - score)
    from sklearn.isotonic import IsotonicRegression

    fit = IsotonicRegression(increasing=False, out_of_bounds="nan").fit(score[labelled], seen.astype(float))
    rate = fit.predict(score)
    return np.where(np.isnan(rate), 1 - score, rate)


def sets_of_draw(draw: Draw, target: int | None = None, held: Array | None = None, steps: int = STEPS) -> NestedSets:
    """The sets of a draw that was checked."""
    others = None if draw.others is None else draw.others.numpy()
    arrays = (*draw.scores(target), draw.certify.numpy(), draw.population.numpy(), draw.strata)
    return nested_sets(*arrays, held, steps, others, draw.inclusion)


def certified(sets: NestedSets, max_error: float, risk: float, future: bool = False) -> Array:
    """(T,) bool: is this set certified, tested alone?"""
    if sets.weighted is None:
        return certified_by_draw(sets, max_error, risk, future)
    if sets.by_chance_only:
        return certified_by_chance(sets, max_error, risk)
    return certified_by_draw(sets, max_error, risk / 2) | certified_by_chance(sets, max_error, risk / 2)


def certified_by_chance(sets: NestedSets, max_error: float, risk: float) -> Array:
    """(T,) bool: test by the weighted bound; False where an inclusion probability is below 0.05."""
    weighted, rest = sets.weighted, sets.unlabelled
    assert weighted is not None
    passed = np.zeros(len(rest), bool)
    for t in np.flatnonzero((weighted.least >= LEAST_INCLUSION) & (rest > 0)).tolist():
        seen = int(weighted.wrong[: weighted.count[t]].sum())
        most = weighted.bound(most_weighted, t, int(rest[t] + weighted.count[t]), risk)
        passed[t] = most - seen <= max_error * rest[t] + 1e-9
    return passed


def certified_by_draw(sets: NestedSets, max_error: float, risk: float, future: bool = False) -> Array:
    """(T,) bool: test by nodes drawn at random: from all, in strata, or as an arm beside others."""
    K, k, e = sets.nodes, sets.labelled, sets.wrong
    if len(K) == 1 and future:
        return future_certified(e[0], k[0], max_error, risk)
    if len(K) == 1 and sets.others is not None and sets.others_wrong is not None:
        o, w = sets.others, sets.others_wrong
        from_all = realised_certified(e[0], K[0], k[0], max_error, risk, o, w)
        return from_all & realised_certified(e[0], K[0] - o, k[0], max_error, risk)
    if len(K) == 1:
        return realised_certified(e[0], K[0], k[0], max_error, risk)
    level = risk / len(K)
    if future:
        bound = np.where(k > e, betaincinv(e + 1, np.maximum(k - e, 1), 1 - level), 1.0)
        return np.asarray((K / K.sum(axis=0) * bound).sum(axis=0) <= max_error)
    most = (most_errors(e, K, k, level) - e).sum(axis=0)
    return np.asarray(most <= max_error * sets.unlabelled + 1e-9) & (sets.unlabelled > 0)


def first_set(sets: NestedSets, max_error: float, risk: float) -> int:
    """Index of the first set to test: the predicted bound with the largest margin. Reads no certifying label."""
    k = sets.sampled * sets.nodes.sum(axis=0)
    if sets.weighted is not None:
        least = np.where(sets.weighted.least >= LEAST_INCLUSION, sets.weighted.least, 0.0)
        k = np.maximum(0.0 if sets.by_chance_only else k, least * sets.nodes.sum(axis=0))
    if sets.others is not None and sets.others_wrong is not None:
        K, o, w = sets.nodes[0], sets.others, sets.others_wrong
        rest = np.maximum(K - o, 1)
        from_rest = predicted_bound(sets.uncertainty, k * rest / K, risk)
        from_all = (K * predicted_bound((w + rest * sets.uncertainty) / K, k, risk) - w) / rest
        return int(np.argmin(np.maximum(from_rest, from_all)))
    return int(np.argmin(predicted_bound(sets.uncertainty, k, risk)))


def predicted_bound(rate: Array, labels: Array, risk: float) -> Array:
    """Clopper and Pearson's bound (T,) if ``labels`` random labels show the error ``rate``."""
    k = np.maximum(labels, 1e-9)
    e = np.minimum(rate, 1 - 1e-9) * k
    return np.asarray(betaincinv(e + 1, k - e, 1 - risk))


def walk(passed: Array, first: int) -> int | None:
    """The last set certified in an unbroken row from ``first`` on; None when the first one fails."""
    failures = np.flatnonzero(~passed[first:])
    last = (len(passed) if len(failures) == 0 else first + int(failures[0])) - 1
    return last if last >= first else None


def certified_set(sets: NestedSets, max_error: float, risk: float, future: bool = False) -> int | None:
    """Number of the largest certified set, None where none is."""
    if sets.nodes.size == 0:
        return None
    return walk(certified(sets, max_error, risk, future), first_set(sets, max_error, risk))


def with_more_labels(sets: NestedSets, factor: float) -> NestedSets:
    """Counts that ``factor`` times as many labels would show at the error rates seen so far: a plan, not a promise."""
    K, k = sets.nodes, sets.labelled
    most = K if sets.others is None else K - sets.others
    more = np.minimum(np.round(k * factor).astype(np.int64), most)
    rate = np.where(k > 0, sets.wrong / np.maximum(k, 1), sets.uncertainty)
    wrong = np.round(rate * more).astype(np.int64)
    return replace(sets, labelled=more, wrong=wrong, sampled=min(1.0, sets.sampled * factor))


def plan_labels(
    sets: NestedSets, labels: int, nodes: int, approved: int, max_error: float, risk: float, future: bool
) -> Plan | None:
    """The first of +50 %, +100 %, +300 % labels that decides more, by 2 % of the nodes at least, None where none does."""
    if sets.by_chance_only:
        return None
    for factor in (1.5, 2.0, 4.0):
        more = round_number((factor - 1) * labels)
        if more >= nodes:
            return None
        last = certified_set(with_more_labels(sets, 1 + more / labels), max_error, risk, future)
        if last is None:
            continue
        then = round(nodes * float(sets.nodes[:, last].sum() / max(sets.nodes[:, -1].sum(), 1)))
        if then >= approved + 0.02 * nodes:
            return Plan(more, round_number(then, 2))
    return None


def round_number(value: float, digits: int = 1) -> int:
    """A count as people say it: one or two digits that matter."""
    if value < 1:
        return 1
    unit = 10 ** max(0, math.floor(math.log10(value)) - digits + 1)
    return int(round(value / unit) * unit)


def largest_zone(conf: Array, error: float) -> tuple[float, int]:
    """Smallest confidence and size of the largest set of most confident rows whose mean of 1 - conf is at most ``error``.

    >>> largest_zone(np.array([0.9, 0.99, 0.97, 0.6]), 0.05)
    (0.9, 3)
    """
    falling = np.sort(conf)[::-1]
    sizes = np.searchsorted(-falling, -falling, side="right")  # equal confidences go together
    fits = np.flatnonzero(np.cumsum(1 - falling)[sizes - 1] <= error * sizes + 1e-12)
    return (float(falling[fits[-1]]), int(sizes[fits[-1]])) if len(fits) else (1.0, 0)


def conformal_p_values(conf: Array, wrong: Array, certify: Array, candidates: Array) -> Array:
    """p of "this node is wrong" for each candidate node, in the order of the nodes."""
    bad = np.sort(conf[certify & wrong])
    above = len(bad) - np.searchsorted(bad, conf[candidates], side="left")  # wrong labelled nodes at least as confident
    return np.asarray((1 + above) / (certify.sum() + 1))


def benjamini_hochberg(p: Array, rate: float) -> Array:
    """(m,) bool: the hypotheses rejected at false discovery rate ``rate``."""
    if len(p) == 0:
        return np.zeros(0, bool)
    ordered = np.sort(p)
    below = np.flatnonzero(ordered <= rate * np.arange(1, len(p) + 1) / len(p))
    return np.asarray(p <= ordered[below[-1]]) if len(below) else np.zeros(len(p), bool)


def select_on_average(conf: Array, wrong: Array, certify: Array, candidates: Array, rate: float) -> Array:
    """(N,) bool: the candidates selected such that on average at most a share ``rate`` of them is wrong."""
    selected = np.zeros(len(conf), bool)
    selected[candidates] = benjamini_hochberg(conformal_p_values(conf, wrong, certify, candidates), rate)
    return selected


@dataclass(frozen=True, eq=False)
class RiskCurve:
    """Errors of ever larger parts of the pool, and what is certified at each target."""

    threshold: Array  # (T,) falling
    coverage: Array  # (T,) share of the unlabelled nodes
    nodes: Array  # (T,) unlabelled nodes
    error: Array  # (T,) share of wrong ones among the labelled; nan where there is none
    low: Array  # (T,) its interval
    high: Array
    targets: tuple[float, ...]
    decided: tuple[int, ...]  # nodes certified at each target
    total: int  # unlabelled nodes
    certainty: float

    def next_target(self, max_error: float) -> tuple[float, int] | None:
        """The smallest target above ``max_error`` that decides some nodes, and how many; None where none does."""
        pairs = zip(self.targets, self.decided)
        return next((pair for pair in pairs if pair[1] and pair[0] > max_error), None)

    def to_dict(self) -> dict[str, Any]:
        def plain(values: Array, digits: int = 5) -> list[float | None]:
            return [None if np.isnan(v) else round(float(v), digits) for v in values]

        columns = {k: plain(getattr(self, k)) for k in ("threshold", "coverage", "error", "low", "high")}
        return {
            **columns,
            "nodes": self.nodes.tolist(),
            "targets": list(self.targets),
            "decided": list(self.decided),
            "total": self.total,
            "certainty": self.certainty,
        }


def risk_curve(
    log_probs: Tensor,
    y: Tensor,
    certify: Any,
    pool: Any = None,
    certainty: float = 0.95,
    targets: Sequence[float] = TARGETS,
    steps: int = 50,
    fitted: Any = None,
    drawn_here: bool = False,
) -> RiskCurve:
    """Compute the curve of predictions by confidence; masks as in `graphcal.decide`."""
    draw = check_draw(log_probs, y, certify, pool, fitted, drawn_here=drawn_here)
    return curve_of(draw, certainty, targets, steps)


def curve_of(draw: Draw, certainty: float = 0.95, targets: Sequence[float] = TARGETS, steps: int = 50) -> RiskCurve:
    """Compute the curve of a draw that was checked."""
    fine, coarse = sets_of_draw(draw), sets_of_draw(draw, steps=steps)
    total = int(draw.open.sum())
    error, low, high = error_shares(coarse, certainty)
    return RiskCurve(
        coarse.threshold,
        coarse.unlabelled / total,
        coarse.unlabelled,
        error,
        low,
        high,
        tuple(targets),
        tuple(by_target(fine, targets, 1 - certainty)),
        total,
        certainty,
    )


def error_shares(sets: NestedSets, certainty: float) -> tuple[Array, Array, Array]:
    """(T,) share of wrong nodes in each set with the ends of its interval; strata count by their size and share the risk."""
    if sets.by_chance_only:
        return weighted_shares(sets, certainty)
    K, k, e = sets.nodes, sets.labelled, sets.wrong
    level = 1 - (1 - certainty) / len(K)
    low, high = clopper_pearson(k, e, level)  # (H, T) each
    weight = K / K.sum(axis=0)
    seen = np.where(k > 0, e / np.maximum(k, 1), np.where(K > 0, np.nan, 0.0))
    return (weight * seen).sum(axis=0), (weight * low).sum(axis=0), (weight * high).sum(axis=0)


def weighted_shares(sets: NestedSets, certainty: float) -> tuple[Array, Array, Array]:
    """(T,) the same from known inclusion probabilities: weighted by 1/π, with the interval of `bounds`."""
    weighted, risk, K = sets.weighted, (1 - certainty) / 2, sets.nodes.sum(axis=0)
    assert weighted is not None
    share, low, high = np.full(len(K), np.nan), np.zeros(len(K)), np.ones(len(K))
    for t in np.flatnonzero(weighted.count).tolist():
        weight, seen = 1 / weighted.inclusion[: weighted.count[t]], weighted.wrong[: weighted.count[t]]
        share[t] = weight[seen].sum() / weight.sum()
        if weighted.least[t] >= LEAST_INCLUSION:
            low[t], high[t] = (weighted.bound(b, t, int(K[t]), risk) / K[t] for b in (fewest_weighted, most_weighted))
    return share, low, high


def by_target(sets: NestedSets, targets: Sequence[float], risk: float) -> list[int]:
    """Unlabelled nodes certified at each target, each promised on its own."""
    ends = (certified_set(sets, target, risk) for target in targets)
    return [0 if last is None else int(sets.unlabelled[last]) for last in ends]
