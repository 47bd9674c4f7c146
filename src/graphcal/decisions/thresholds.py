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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv
from torch import Tensor

from graphcal.decisions.bounds import Array, future_certified, most_errors, realised_certified, share_interval
from graphcal.decisions.decision import Plan
from graphcal.decisions.masks import Draw, check_draw

STEPS = 100  # sets that are tested, of equally many nodes more each
TARGETS = (0.005, *(k / 100 for k in range(1, 31)))  # of the risk curve


@dataclass(frozen=True, eq=False)
class NestedSets:
    """Sets of ever more nodes by falling confidence, counted in each of H strata."""

    threshold: Array  # (T,) falling
    nodes: Array  # (H, T) K
    labelled: Array  # (H, T) k
    wrong: Array  # (H, T) e
    uncertainty: Array  # (T,) mean of 1 - conf over the set
    sampled: float  # share of the pool that is labelled

    @property
    def unlabelled(self) -> Array:  # (T,)
        return np.asarray((self.nodes - self.labelled).sum(axis=0))


def nested_sets(
    conf: Array,
    wrong: Array,
    certify: Array,
    pool: Array,
    strata: Array | None = None,
    held: Array | None = None,
    steps: int = STEPS,
) -> NestedSets:
    """The sets of a pool (which holds the certification nodes), ``held`` nodes in none. ``wrong`` is read at ``certify`` only."""
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

    uncertainty = np.cumsum(1 - score)[ends - 1] / ends
    share = certify.sum() / max(pool.sum(), 1)
    return NestedSets(
        threshold, counted(np.ones(len(ordered), bool)), counted(drawn), counted(off), uncertainty, float(share)
    )


def certified(sets: NestedSets, max_error: float, risk: float, future: bool = False) -> Array:
    """(T,) bool: is this set certified, tested alone?"""
    K, k, e = sets.nodes, sets.labelled, sets.wrong
    if len(K) == 1 and future:
        return future_certified(e[0], k[0], max_error, risk)
    if len(K) == 1:
        return realised_certified(e[0], K[0], k[0], max_error, risk)
    level = risk / len(K)
    if future:
        bound = np.where(k > e, betaincinv(e + 1, np.maximum(k - e, 1), 1 - level), 1.0)
        return np.asarray((K / K.sum(axis=0) * bound).sum(axis=0) <= max_error)
    most = (most_errors(e, K, k, level) - e).sum(axis=0)
    return np.asarray(most <= max_error * sets.unlabelled + 1e-9) & (sets.unlabelled > 0)


def first_set(sets: NestedSets, max_error: float, risk: float) -> int:
    """Index of the first set to test: the predicted bound with the largest margin. Reads no label."""
    k = np.maximum(sets.sampled * sets.nodes.sum(axis=0), 1e-9)
    e = np.minimum(sets.uncertainty, 1 - 1e-9) * k
    return int(np.argmax(max_error - betaincinv(e + 1, k - e, 1 - risk)))


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
    more = np.minimum(np.round(k * factor).astype(np.int64), K)
    rate = np.where(k > 0, sets.wrong / np.maximum(k, 1), sets.uncertainty)
    wrong = np.round(rate * more).astype(np.int64)
    return NestedSets(sets.threshold, K, more, wrong, sets.uncertainty, min(1.0, sets.sampled * factor))


def plan_labels(
    sets: NestedSets, labels: int, nodes: int, approved: int, max_error: float, risk: float, future: bool
) -> Plan | None:
    """The first of +50 %, +100 %, +300 % labels that decides more, by 2 % of the nodes at least, None where none does."""
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
    certify, population = draw.certify, draw.population
    arrays = (*draw.scores(None), certify.numpy(), population.numpy())
    fine, coarse = nested_sets(*arrays, draw.strata), nested_sets(*arrays, draw.strata, steps=steps)
    total = int((population & ~certify).sum())
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
    K, k, e = sets.nodes, sets.labelled, sets.wrong
    level = 1 - (1 - certainty) / len(K)
    ends = [share_interval(int(b), int(a), level) if a else (0.0, 1.0) for a, b in zip(k.flat, e.flat)]
    low, high = np.array(ends).reshape(*k.shape, 2).transpose(2, 0, 1)  # (H, T) each
    weight = K / K.sum(axis=0)
    seen = np.where(k > 0, e / np.maximum(k, 1), np.where(K > 0, np.nan, 0.0))
    return (weight * seen).sum(axis=0), (weight * low).sum(axis=0), (weight * high).sum(axis=0)


def by_target(sets: NestedSets, targets: Sequence[float], risk: float) -> list[int]:
    """Unlabelled nodes certified at each target, each promised on its own."""
    ends = (certified_set(sets, target, risk) for target in targets)
    return [0 if last is None else int(sets.unlabelled[last]) for last in ends]
